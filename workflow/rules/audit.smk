# Attacks on the algorithms' own code: what ε they refute. The trainings with canaries use data, partition and model of
# the scenario's first run; `audit:` in the scenario chooses size and seed.


rule audit:
    input:
        paths.prepared_file(SCENARIO.runs[0].data_key, "meta.json"),
        paths.partition_file(SCENARIO.runs[0].partition_id, "partition.json"),
    output:
        collected("audit"),
        paths.table_file(SCENARIO.name, "audit"),
        f"{paths.scenario_dir(SCENARIO.name)}/audit.json",
    log:
        log_of("audit"),
    benchmark:
        benchmark_of("audit")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(3000),
        runtime=grows(120),
    params:
        cache=paths.calibration_cache_dir(),
        run=lambda wildcards, threads: SCENARIO.runs[0].model_dump_json(),
        size=SCENARIO.audit.size,
        seed=SCENARIO.audit.seed,
        code=[
            fingerprint("subjectdp.auditing.training_setup"),
            fingerprint("subjectdp.auditing.suite"),
            fingerprint("subjectdp.algorithms.*"),
        ],
    script:
        "../scripts/audit.py"
