# From the runs' own files to the tables of the scenario.


rule collect:
    input:
        [
            paths.run_file(run_id, name)
            for run_id in RUNS
            for name in ("manifest.json", "rounds.parquet", "steps.parquet")
        ],
    output:
        paths.runs_table(SCENARIO.name),
        f"{paths.scenario_dir(SCENARIO.name)}/rounds.parquet",
        f"{paths.scenario_dir(SCENARIO.name)}/steps.parquet",
    log:
        log_of("collect"),
    benchmark:
        benchmark_of("collect")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 3000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        runs=[paths.run_dir(run_id) for run_id in RUNS],
        folder=paths.scenario_dir(SCENARIO.name),
        code=fingerprint("collect"),
    script:
        "../scripts/collect.py"
