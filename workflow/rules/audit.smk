# Attacks on the algorithms' own code: which claims of ε they refute.


# Canaries are trained with the data, partition and model of the scenario's first run; `audit:` in the scenario chooses
# size and seed.
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
        "../envs/pipeline.yaml"
    resources:
        **resources_for(3000, 120),
    params:
        cache=placed.calibration_cache_dir(),
        run=lambda wildcards, threads: SCENARIO.runs[0].model_dump_json(),
        size=SCENARIO.audit.size,
        seed=SCENARIO.audit.seed,
        code=code_of(
            "audit",
            "subjectdp.auditing.training_audit",
            "subjectdp.auditing.suite",
            "subjectdp.algorithms.*",
            f"model:{SCENARIO.runs[0].model.name}",
        ),
    script:
        "../scripts/audit.py"


# Joint noise over several local steps: its counterexample, executed. It needs no data.
rule counterexample:
    output:
        collected("counterexample"),
        paths.table_file(SCENARIO.name, "counterexample"),
        page_of(
            "counterexample",
            "Tables",
            "Joint noise over several local steps: a counterexample",
        ),
    log:
        log_of("counterexample"),
    benchmark:
        benchmark_of("counterexample")
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(2000, 30),
    params:
        runs=200_000,
        title="Joint noise over several local steps: a counterexample",
        template=PAGE_TEMPLATE,
        code=code_of("counterexample", "subjectdp.auditing.counterexample", "report"),
    script:
        "../scripts/counterexample.py"
