# Which repetition of a private selection is released, and its ε (docs/privacy-model.md).
rule private_selection:
    input:
        rules.collect.input,
    output:
        paths.table_file(SCENARIO.name, "private_selection"),
        page_of("private_selection", "Tables", "Private selection: what is released"),
        SELECTIONS,
    log:
        log_of("private_selection"),
    benchmark:
        benchmark_of("private_selection")
    conda:
        "../envs/pipeline.yaml"
    resources:
        **asks(3000, 30),
    params:
        scenario=SETTINGS,
        cache=placed.calibration_cache_dir(),
        code=code_of("select", "subjectdp.utility.private_selection", "report"),
    script:
        "../scripts/select.py"
