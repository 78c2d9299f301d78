# From the runs' own files, and from sampling alone, to the tables of the scenario.


rule collect:
    input:
        [paths.run_file(run_id, "manifest.json") for run_id in RUNS],
    output:
        [collected(name) for name in COLLECTED],
    log:
        log_of("collect"),
    benchmark:
        benchmark_of("collect")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(3000),
        runtime=grows(30),
    params:
        code=fingerprint("collect"),
    script:
        "../scripts/collect.py"


# A figure that shows a part of the scenario's runs waits for those alone.
use rule collect as collect_selection with:
    input:
        lambda wildcards: [
            paths.run_file(run.run_id, "manifest.json")
            for run in SCENARIO.runs_of_figure(wildcards.figure)
        ],
    output:
        [collected(f"selections/{{figure}}/{name}") for name in COLLECTED],
    log:
        log_of("collect", f"{SCENARIO.name}-{{figure}}"),
    benchmark:
        benchmark_of("collect", f"{SCENARIO.name}-{{figure}}")


rule runs_summary:
    input:
        collected("runs"),
    output:
        paths.table_file(SCENARIO.name, "runs_summary"),
        report(
            page_of("runs_summary"),
            caption="../report/runs_summary.rst",
            category="Tables",
            labels={"table": "Runs: accuracy, published and sound ε, cost"},
        ),
    log:
        log_of("runs_summary"),
    benchmark:
        benchmark_of("runs_summary")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title=f"Runs of {SCENARIO.name}",
        code=fingerprint("report"),
    script:
        "../scripts/runs_summary.py"


# The papers' full scale (3,500 and 660 subjects, 16 silos) needs no training where only mini-batches are counted.
rule statistics:
    input:
        [paths.prepared_file(key, "meta.json") for key in real_shakespeare()],
    output:
        collected("statistics"),
    log:
        log_of("statistics"),
    benchmark:
        benchmark_of("statistics")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(30),
    params:
        code=fingerprint("statistics"),
    script:
        "../scripts/statistics.py"


rule statistics_table:
    input:
        rules.statistics.output,
    output:
        paths.table_file(SCENARIO.name, "statistics"),
        report(
            page_of("statistics"),
            caption="../report/statistics.rst",
            category="Tables",
            labels={"table": "Mini-batches at the papers' scale"},
        ),
    log:
        log_of("statistics_table"),
    benchmark:
        benchmark_of("statistics_table")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title="Mini-batches at the papers' scale",
        code=fingerprint("report"),
    script:
        "../scripts/statistics_table.py"
