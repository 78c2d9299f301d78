# A search of hyperparameters: the trials of each point of the sweep, and a scenario file with the best (docs/privacy-model.md).
rule tune:
    input:
        [paths.run_file(run_id, "manifest.json") for run_id in SCENARIO.trials],
    output:
        paths.table_file(SCENARIO.name, "tuning"),
        f"{paths.scenario_dir(SCENARIO.name)}/tuned.yaml",
    log:
        log_of("tune"),
    benchmark:
        benchmark_of("tune")
    localrule: CLUSTER.light_jobs_local
    conda:
        "../envs/pipeline.yaml"
    resources:
        **asks(3000, 30),
    params:
        scenario=SETTINGS,
        code=code_of("tune", "subjectdp.utility.tuning"),
    script:
        "../scripts/tune.py"
