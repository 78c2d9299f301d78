# One job a run. Retries and GPUs are the profile's matter: a retry here would be honoured again inside a cluster job.

TRAINED = ("manifest.json", "rounds.parquet", "steps.parquet", "model.safetensors")
TRAINING_CODE = {
    name: fingerprint(f"train:{name}")
    for name in {run.algorithm.name for run in RUNS.values()}
}


rule train:
    input:
        training_inputs,
    output:
        [paths.run_file("{run_id}", name) for name in TRAINED],
    log:
        log_of("train", "{run_id}"),
    benchmark:
        benchmark_of("train", "{run_id}")
    conda:
        "../../envs/cuda.yaml"
    # Becomes OMP_NUM_THREADS and its like in the job's environment.
    threads: max(run.performance.threads for run in RUNS.values())
    resources:
        mem_mb=3000,
        runtime=120,
    params:
        cache=paths.calibration_cache_dir(),
        run=settings(RUNS, "run_id"),
        code=lambda wildcards: TRAINING_CODE[RUNS[wildcards.run_id].algorithm.name],
    script:
        "../scripts/train.py"
