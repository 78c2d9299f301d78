# What concerns joint noise alone and needs no training: its counterexample, executed.


rule counterexample:
    output:
        collected("counterexample"),
        paths.table_file(SCENARIO.name, "counterexample"),
        report(
            page_of("counterexample"),
            caption="../report/counterexample.rst",
            category="Tables",
            labels={"table": "Joint noise over several local steps: a counterexample"},
        ),
    log:
        log_of("counterexample"),
    benchmark:
        benchmark_of("counterexample")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(30),
    params:
        runs=200_000,
        title="Joint noise over several local steps: a counterexample",
        code=[fingerprint("subjectdp.auditing.counterexample"), fingerprint("report")],
    script:
        "../scripts/counterexample.py"


rule table1:
    output:
        paths.table_file(SCENARIO.name, "table1"),
        report(
            page_of("table1"),
            caption="../report/table1.rst",
            category="Tables",
            labels={"table": "Joint noise: the paper's Table 1"},
        ),
    log:
        log_of("table1"),
    benchmark:
        benchmark_of("table1")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title="Joint noise: the paper's Table 1",
        code=[fingerprint("subjectdp.accounting.table1"), fingerprint("report")],
    script:
        "../scripts/table1.py"
