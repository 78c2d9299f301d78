# Short names for snakemake, pytest and linters, run from the pinned environment in .venv.
#   make figures        the embedded scenario: figures, tables and report, without any download
#   make NAME           config/scenarios/NAME.yaml, e.g. make smoke, make small-femnist, make paper
#   make plan           before anything runs: runs, ε, hours, memory and disk of SCENARIO (default: embedded)
#   make bench          private steps against plain SGD and other libraries;  make bench-quick  in a minute
#   make test           what to run before a commit;  make test-fast  a subset for every save
#   make test-long      whole workflows, tutorials, audits, faults around trainings: all that make test leaves out
#   make lint           the static checks;  make format  fixes what a tool can fix
#   make slurm-test     the tests on a real one-node Slurm (root; INSTALL=1 installs it if missing)
#   make federation-test  silos, SuperNodes and a SuperLink of Flower as processes, with TLS (installs Flower beside .venv)
#   make mutants        plants bugs in copies of the library: a test has to kill each
#   make fuzz           thousands of hostile archives, JSON files, texts and scenarios: read correctly or refused clearly
#   make faults         kills, full and read-only disks: nothing may be lost or silently wrong
#   make docs           the docs as a site in site/, which opens without a server
#   make architecture   draws the packages of the library and their imports into docs/extending.md
#   make help           this text
# Variables: CORES (default: all), PYTHON (3.11 to 3.13), SCENARIO (for plan), ARGS (passed to the command).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := figures

PYTHON ?= $(or $(shell command -v python3.11 || command -v python3.12 || command -v python3.13),python3)
CORES ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || sysctl -n hw.ncpu)
ARGS ?=
SCENARIO ?= embedded

BIN := .venv/bin
hash = $(shell cat $(1) | $(PYTHON) -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest()[:16])')
STAMP := .venv/.installed-$(call hash,requirements.lock pyproject.toml)
TOOLS := .venv/.tools-$(call hash,requirements.lock requirements-dev.lock)
SCENARIOS := $(basename $(notdir $(wildcard config/scenarios/*.yaml)))
SNAKEMAKE := $(BIN)/snakemake --cores $(CORES) --workflow-profile workflow/profiles/local

.PHONY: help figures plan venv test test-fast test-long slurm-test federation-test mutants faults fuzz bench bench-quick lint docs architecture format clean clean-results $(SCENARIOS)

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

# Hundreds of processes start: byte code is kept, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

# ---- scenarios -----------------------------------------------------------------------------------------------
figures: embedded

# One line of progress; Snakemake's output is in results/logs/workflow. With ARGS=-n it is shown.
$(SCENARIOS): $(STAMP)
	$(BIN)/subjectdp run config/scenarios/$@.yaml --cores $(CORES) -- $(ARGS)

plan: $(STAMP)
	$(BIN)/subjectdp plan config/scenarios/$(SCENARIO).yaml $(ARGS)
	@echo "As files: results/$(SCENARIO)/plan.txt, plan.csv"

# ---- environment ---------------------------------------------------------------------------------------------
# Scenarios need no tools of development. A stamp's name has a hash of the locks: an unchanged environment costs nothing
# and needs no network.
venv: $(STAMP) $(TOOLS)

# torch is installed first and alone, so that pip takes a CPU build if one is offered. uv installs where it is there and
# finds the packages (it reads no pip.conf). Byte code is written for what is imported, not for all that is installed.
UV := $(shell command -v uv)
install = $(if $(UV),$(UV) pip install --quiet --python $(BIN)/python $(2) $(1) 2> /dev/null || )$(BIN)/python -m pip install --quiet --no-compile $(1)

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "error: Python 3.11, 3.12 or 3.13 is needed (found: $$($(PYTHON) -V)); set PYTHON=/path/to/one" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(call install,"$$(grep '^torch==' requirements.lock)",--torch-backend=auto)
	$(call install,--requirement requirements.lock)
	$(call install,--no-deps --no-build-isolation --editable .)
	$(BIN)/python -c 'import seaborn, snakemake.cli, subjectdp.training.run'
	rm -f .venv/.installed-*
	touch $@

$(TOOLS): $(STAMP)
	$(call install,--requirement requirements-dev.lock)
	$(BIN)/python -c 'import pytest'
	rm -f .venv/.tools-*
	touch $@

# ---- checks --------------------------------------------------------------------------------------------------
PYTEST := $(BIN)/pytest --numprocesses $(CORES)

# One thread in each of the processes.
test test-fast test-long: export OMP_NUM_THREADS := 1

# A process takes the next file in the order of tests/conftest.py.
BY_FILE := --dist loadfile --no-loadscope-reorder

test: venv
	$(PYTEST) $(BY_FILE) $(ARGS)

test-fast: venv
	$(PYTEST) $(BY_FILE) -m "not slow and not workflow and not long and not mutants and not faults" $(ARGS)

test-long: venv
	$(PYTEST) $(BY_FILE) -m long $(ARGS)

# Starts and stops Slurm itself; where that is impossible the tests are skipped and say why. SUBJECTDP_SLURM_TESTS=long
# runs more.
slurm-test: venv
	SUBJECTDP_SLURM_TESTS=$${SUBJECTDP_SLURM_TESTS:-1} $(BIN)/pytest tests/slurm -rs $(ARGS)

# Flower has an environment of its own, on top of .venv: its pins stay out of the locks. About eight minutes.
federation-test: venv .venv-flower/bin/flwr
	SUBJECTDP_FEDERATION_TESTS=1 OMP_NUM_THREADS=1 .venv-flower/bin/python -m pytest tests/federation -m "" -rs -s $(ARGS)

.venv-flower/bin/flwr:
	$(BIN)/python -m venv .venv-flower
	echo "import site; site.addsitedir('$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')')" \
	  > "$$(.venv-flower/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
	.venv-flower/bin/python -m pip install --quiet "$$(sed -n 's/^flower = \["\([^"]*\)".*/\1/p' pyproject.toml)"

# Plants bugs in copies of the library; the last line reads `N mutants, N killed`. One bug: ARGS="-k part-of-its-name".
mutants: venv
	$(PYTEST) tests/mutants -m "" -v $(ARGS)

# Breaks things around real trainings; the last line reads `N faults, N recovered`.
faults: venv
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/faults -m faults -s $(ARGS)

# 12,000 inputs in a few minutes; the last line reads `N inputs, N read, N refused`.
fuzz: export SUBJECTDP_FUZZ_INPUTS ?= 12000
fuzz: venv
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/hostile/test_fuzz.py -s -k every_input $(ARGS)

# About twenty minutes on an idle machine; tables in results/bench. The goals come last: met, or missed by how much.
bench: venv
	PYTHONPATH=workflow/lib $(BIN)/python -m benchmarks $(ARGS)

# Under a minute, against loose floors; exit code 1 where one is broken. Tables in results/bench/quick.
bench-quick: venv
	PYTHONPATH=workflow/lib $(BIN)/python -m benchmarks --quick $(ARGS)

lint: venv
	.ci/lint

# Every link and anchor is checked; the references are written from schema, commands and docstrings.
docs: venv
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo "Docs: site/index.html"

# Draws the packages of the library and their imports into docs/extending.md.
architecture: venv
	PYTHONPATH=tests:workflow/lib $(BIN)/python -m architecture

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/Snakefile workflow/rules
	$(BIN)/shfmt --write --indent 2 .ci/run .ci/lint tests/slurm/*.sh

# ---- cleaning ------------------------------------------------------------------------------------------------
clean:
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist workflow/lib/subjectdp.egg-info
	find workflow tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Deletes every result, prepared data included; the environment stays.
clean-results:
	find results -mindepth 1 -maxdepth 1 ! -name .gitkeep -exec rm -rf {} +
	rm -rf .snakemake
