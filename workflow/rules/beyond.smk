# Beyond the papers: the one number that algorithms can be compared by, planned and measured (docs/beyond.md).

BEYOND = [name for name in SCENARIO.figures if name.startswith("beyond")]


rule leads:
    input:
        collected("runs"),
    output:
        paths.table_file(SCENARIO.name, "leads"),
        report(
            page_of("leads"),
            caption="../report/leads.rst",
            category="Beyond the papers",
            labels={"table": "Sound algorithms side by side"},
        ),
    log:
        log_of("leads"),
    benchmark:
        benchmark_of("leads")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title=f"Sound algorithms side by side: {SCENARIO.name}",
        code=[fingerprint("subjectdp.scorecard.leads"), fingerprint("report")],
    script:
        "../scripts/leads.py"


rule goals:
    input:
        goals=judged_by("goals"),
        runs=collected("runs"),
    output:
        paths.table_file(SCENARIO.name, "goals"),
        report(
            page_of("goals"),
            caption="../report/goals.rst",
            category="Beyond the papers",
            labels={"table": "The project's goals, what was reached"},
        ),
    log:
        log_of("goals"),
    benchmark:
        benchmark_of("goals")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        title=f"Goals beyond the papers: {SCENARIO.name}",
        code=[fingerprint("subjectdp.scorecard.goals"), fingerprint("report")],
    script:
        "../scripts/goals.py"


rule noise:
    input:
        prepared=[
            paths.prepared_file(run.data_key, "meta.json") for run in noise_runs()
        ],
        partitions=[
            paths.partition_file(run.partition_id, "partition.json")
            for run in noise_runs()
        ],
    output:
        collected("noise"),
    log:
        log_of("noise"),
    benchmark:
        benchmark_of("noise")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(3000),
        runtime=grows(60),
    params:
        cache=paths.calibration_cache_dir(),
        # `input` keeps whole configurations out of what Snakemake compares; ids stand for them.
        runs=lambda wildcards, input: [run.model_dump_json() for run in noise_runs()],
        run_ids=[run.run_id for run in noise_runs()],
        code=[
            fingerprint("subjectdp.utility.measured_noise"),
            fingerprint("subjectdp.algorithms.*"),
        ],
    script:
        "../scripts/noise.py"
