# The environment of requirements.lock with the checkout in it; runs `make figures`.
#   docker build --tag subjectdp .
#   docker run --rm --volume "$PWD/results:/subjectdp/results" subjectdp
#   docker run --rm --volume "$PWD/results:/subjectdp/results" subjectdp make smoke
# The same image for Apptainer (workflow/envs/apptainer.def has the environment alone, for `--sdm apptainer`):
#   apptainer build subjectdp.sif docker-daemon://subjectdp:latest
#   apptainer run --pwd /subjectdp --writable-tmpfs --bind results:/subjectdp/results subjectdp.sif
FROM python:3.11-slim-bookworm

RUN apt-get update \
 && apt-get install --yes --no-install-recommends make git \
 && rm -rf /var/lib/apt/lists/*

# Builds of torch without CUDA; for GPUs: --build-arg PIP_EXTRA_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ARG PIP_NO_CACHE_DIR=1

WORKDIR /subjectdp
COPY . .
RUN make venv

ENV PATH=/subjectdp/.venv/bin:$PATH
CMD ["make", "figures"]
