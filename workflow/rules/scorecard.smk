# What the papers print beside what the scenario gives, with verdicts (docs/scorecard.md).


def targets_file():
    """The papers' numbers: of the working directory, or those that come with the workflow."""
    own = "config/targets.csv"
    return own if os.path.exists(own) else str(Path(workflow.basedir) / own)


# Accounting at the papers' settings needs no training; like the sampling at their scale it is made where a scenario
# shows that scale.
rule paper_accounting:
    input:
        targets_file(),
    output:
        collected("accounting"),
    log:
        log_of("paper_accounting"),
    benchmark:
        benchmark_of("paper_accounting")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        cache=paths.calibration_cache_dir(),
        code=fingerprint("subjectdp.analysis.paper_accounting"),
    script:
        "../scripts/paper_accounting.py"


def image_run(wildcards):
    """The first run on images: the convex model takes its data, mini-batch size, ε and δ."""
    for run in SCENARIO.runs:
        if run.data.dataset == "femnist":
            return run
    raise WorkflowError(
        "error: Expected figures to be without excess_loss where no run is on femnist."
    )


def utility_settings(run):
    """What of the run the convex model uses; the data are in the job's input."""
    data, training, privacy = run.data, run.training, run.privacy
    split = [data.subjects, data.test_fraction, data.validation_fraction]
    return [
        *split,
        training.batch_size,
        privacy.epsilon,
        privacy.delta,
    ]


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
        mem_mb=3000,
        runtime=60,
    params:
        cache=paths.calibration_cache_dir(),
        run=lambda wildcards, threads: image_run(wildcards).model_dump_json(),
        settings=lambda wildcards: utility_settings(image_run(wildcards)),
        code=[
            fingerprint("subjectdp.utility.measure"),
            fingerprint("subjectdp.algorithms.*"),
        ],
    script:
        "../scripts/utility.py"


rule scorecard:
    input:
        targets=targets_file(),
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
        mem_mb=2000,
        runtime=15,
    params:
        title=f"Scorecard of {SCENARIO.name}",
        code=[fingerprint("subjectdp.analysis.scorecard"), fingerprint("report")],
    script:
        "../scripts/scorecard.py"
