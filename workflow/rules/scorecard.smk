# What the papers print beside what the scenario gives, with verdicts (docs/scorecard.md).


# Accounting at the papers' settings needs no training; like the sampling at their scale it is made where a scenario
# shows that scale.
rule paper_accounting:
    input:
        judged_by("targets"),
    output:
        collected("accounting"),
    log:
        log_of("paper_accounting"),
    benchmark:
        benchmark_of("paper_accounting")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        cache=paths.calibration_cache_dir(),
        code=fingerprint("subjectdp.scorecard.paper_accounting"),
    script:
        "../scripts/paper_accounting.py"


# Section 4 of v3: a convex model, trained by the engine that trains everything, beside the papers' bounds.
rule utility:
    input:
        lambda wildcards: paths.prepared_file(
            image_run(wildcards).data_key, "meta.json"
        ),
    output:
        collected("utility"),
    log:
        log_of("utility"),
    benchmark:
        benchmark_of("utility")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(3000),
        runtime=grows(60),
    params:
        cache=paths.calibration_cache_dir(),
        run=lambda wildcards, threads: image_run(wildcards).model_dump_json(),
        settings=lambda wildcards: utility_settings(image_run(wildcards)),
        code=[
            fingerprint("subjectdp.utility.excess_loss"),
            fingerprint("subjectdp.algorithms.*"),
        ],
    script:
        "../scripts/utility.py"


rule scorecard:
    input:
        targets=judged_by("targets"),
        runs=collected("runs"),
        rounds=collected("rounds"),
        accounting=collected("accounting") if SAMPLED else [],
        statistics=collected("statistics") if SAMPLED else [],
        utility=collected("utility") if CONVEX else [],
    output:
        paths.table_file(SCENARIO.name, "scorecard"),
        report(
            page_of("scorecard"),
            caption="../report/scorecard.rst",
            category="Scorecard",
            labels={"table": "The papers' numbers, ours, verdicts"},
        ),
    log:
        log_of("scorecard"),
    benchmark:
        benchmark_of("scorecard")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title=f"Scorecard of {SCENARIO.name}",
        code=[fingerprint("subjectdp.scorecard.scorecard"), fingerprint("report")],
    script:
        "../scripts/scorecard.py"
