# From the runs' own files, and from sampling alone, to the tables of the scenario.


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


def shakespeare_data():
    """Key of the real Shakespeare data of the scenario, whole, if it has them: their counts replace the model's."""
    return [
        key
        for key, data in DATA.items()
        if data.dataset == "shakespeare" and data.source != "embedded"
    ][:1]


# The papers' full scale (3,500 and 660 subjects, 16 silos) needs no training where only mini-batches are counted.
rule statistics:
    input:
        [file for key in shakespeare_data() for file in paths.prepared_files(key)],
    output:
        f"{paths.scenario_dir(SCENARIO.name)}/statistics.parquet",
        report(
            paths.table_file(SCENARIO.name, "statistics"),
            caption="../report/statistics.rst",
            category="The papers' scale, from sampling alone",
            labels={"table": "Mini-batches at the papers' scale"},
        ),
    log:
        log_of("statistics"),
    benchmark:
        benchmark_of("statistics")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        prepared=[paths.prepared_dir(key) for key in shakespeare_data()],
        code=fingerprint("statistics"),
    script:
        "../scripts/statistics.py"
