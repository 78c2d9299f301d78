# One job per run; the Slurm profile may put several short runs into one job. Retries are set in the profile: those of a
# rule would be repeated inside a cluster job.


# Group only if several short runs share a job; a constant group makes every run a group job.
shared_job = (
    (lambda wildcards: CLUSTER.group_of(RUNS[wildcards.run_id]))
    if CLUSTER.runs_per_job > 1
    else None
)


# The manifest represents the run's folder: it is written last, with the hashes of the other files.
rule train:
    input:
        training_inputs,
    output:
        paths.run_file("{run_id}", "manifest.json"),
    # A run leaves the seven files of its folder: time and memory are in its manifest.
    log:
        paths.run_file("{run_id}", "progress.log"),
    # The longest run first, so that all cores end together; whatever trains nothing (priority 0) comes before.
    priority: lambda wildcards: -1 / forecast_seconds(RUNS[wildcards.run_id])
    group:
        shared_job
    conda:
        "../envs/cuda.yaml"
    # Sets OMP_NUM_THREADS and similar variables of the job.
    threads: training_threads
    resources:
        **on_cluster(),
        mem_mb=lambda wildcards, attempt: CLUSTER.memory_mb_of(
            RUNS[wildcards.run_id], attempt
        ),
        runtime=lambda wildcards, attempt: CLUSTER.minutes_of(
            RUNS[wildcards.run_id], attempt
        ),
    params:
        cache=placed.calibration_cache_dir(),
        run=settings(RUNS, "run_id"),
        code=lambda wildcards: read_code(
            "script:train", *trained_by(RUNS[wildcards.run_id])
        ),
    script:
        "../scripts/train.py"
