# One job a run. Retries and GPUs are the profile's matter: a retry here would be honoured again inside a cluster job.

TRAINED = [name for name in paths.RUN_FILES if name != "progress.log"]


rule train:
    input:
        prepared=lambda wildcards: paths.prepared_files(RUNS[wildcards.run_id].data_key),
        partition=lambda wildcards: paths.partition_files(
            RUNS[wildcards.run_id].partition_id
        ),
    # The progress stays when a job fails: it is no output.
    output:
        [paths.run_file("{run_id}", name) for name in TRAINED],
    log:
        log_of("train", "{run_id}"),
    benchmark:
        benchmark_of("train", "{run_id}")
    conda:
        "../../envs/cuda.yaml"
    # Becomes OMP_NUM_THREADS and its like in the job's environment.
    threads: lambda wildcards: RUNS[wildcards.run_id].performance.threads
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    params:
        prepared=lambda wildcards: paths.prepared_dir(RUNS[wildcards.run_id].data_key),
        partition=lambda wildcards: paths.partition_dir(
            RUNS[wildcards.run_id].partition_id
        ),
        folder=paths.run_dir("{run_id}"),
        run=settings(RUNS, "run_id"),
        code=fingerprint("train"),
    script:
        "../scripts/train.py"
