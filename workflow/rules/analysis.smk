# From the runs' own files to the scenario's tables of runs, and what needs no run: sampling, accounting, a convex model.


rule collect:
    input:
        [paths.run_file(run_id, "manifest.json") for run_id in SCENARIO.runs_by_id],
    output:
        [collected(name) for name in COLLECTED],
    log:
        log_of("collect"),
    benchmark:
        benchmark_of("collect")
    localrule: CLUSTER.light_jobs_local
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(3000, 30),
    params:
        code=code_of("collect", "collect"),
    script:
        "../scripts/collect.py"


# A figure that shows only some of the scenario's runs waits for those alone.
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


# Mini-batches at the papers' full scale (3,500 and 660 subjects, 16 silos), without any training.
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
        "../envs/pipeline.yaml"
    resources:
        **resources_for(2000, 30),
    params:
        code=code_of("statistics", "statistics"),
    script:
        "../scripts/statistics.py"


# Privacy accounting at the papers' own settings.
rule paper_accounting:
    input:
        judged_by("targets"),
    output:
        collected("accounting"),
    log:
        log_of("paper_accounting"),
    benchmark:
        benchmark_of("paper_accounting")
    localrule: CLUSTER.light_jobs_local
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(2000, 15),
    params:
        cache=placed.calibration_cache_dir(),
        code=code_of("paper_accounting", "subjectdp.report.paper_accounting"),
    script:
        "../scripts/paper_accounting.py"


# Section 4 of v3: a convex model, trained by the same engine, beside the papers' bounds.
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
        "../envs/pipeline.yaml"
    resources:
        **resources_for(3000, 60),
    params:
        cache=placed.calibration_cache_dir(),
        run=lambda wildcards, threads: image_run(wildcards).model_dump_json(),
        settings=lambda wildcards: utility_settings(image_run(wildcards)),
        code=code_of(
            "utility",
            "subjectdp.utility.excess_loss",
            "subjectdp.algorithms.*",
            "model:logistic",
        ),
    script:
        "../scripts/utility.py"


# Beyond the papers: noise on the averaged gradient, planned and measured (docs/own-algorithms.md).
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
        "../envs/pipeline.yaml"
    resources:
        **resources_for(3000, 60),
    params:
        cache=placed.calibration_cache_dir(),
        # Depends on `input`, so that Snakemake compares the ids below and not whole configurations.
        runs=lambda wildcards, input: [run.model_dump_json() for run in noise_runs()],
        run_ids=[run.run_id for run in noise_runs()],
        code=code_of(
            "noise",
            "subjectdp.utility.measured_noise",
            "subjectdp.algorithms.*",
            *sorted({f"model:{run.model.name}" for run in noise_runs()}),
        ),
    script:
        "../scripts/noise.py"
