# One job a run, or several short runs in one cluster job, one after another, where the profile says so. Retries are the
# profile's matter: a retry here would be honoured again inside a cluster job.

TRAINING_CODE = {
    name: fingerprint(f"train:{name}")
    for name in {run.algorithm.name for run in RUNS.values()}
}
TRAINING_THREADS = max(
    run.performance.processes * run.performance.threads for run in RUNS.values()
)
# Of a constant group Snakemake makes one job a run where nothing is to be put together; None is no group at all.
shared_job = (
    (lambda wildcards: CLUSTER.group_of(RUNS[wildcards.run_id]))
    if CLUSTER.runs_per_job > 1
    else None
)


# The manifest stands for the run's folder: it is written last, with the hashes of the other files.
rule train:
    input:
        training_inputs,
    output:
        paths.run_file("{run_id}", "manifest.json"),
    log:
        log_of("train", "{run_id}"),
    benchmark:
        benchmark_of("train", "{run_id}")
    group:
        shared_job
    conda:
        "../../envs/cuda.yaml"
    # Becomes OMP_NUM_THREADS and its like in the job's environment.
    threads: TRAINING_THREADS
    resources:
        **training_gpus(),
        mem_mb=lambda wildcards, attempt: CLUSTER.memory_mb_of(
            RUNS[wildcards.run_id], attempt
        ),
        runtime=lambda wildcards, attempt: CLUSTER.minutes_of(
            RUNS[wildcards.run_id], attempt
        ),
    params:
        cache=paths.calibration_cache_dir(),
        run=settings(RUNS, "run_id"),
        code=lambda wildcards: TRAINING_CODE[RUNS[wildcards.run_id].algorithm.name],
    script:
        "../scripts/train.py"
