# The report itself is `snakemake --report results/NAME/report.html`, after the run; here is what only the report needs.

OPENING = f"{paths.scenario_dir(SCENARIO.name)}/opening.rst"
TEMPLATE = Path(workflow.basedir) / "workflow" / "report" / "workflow.rst"


# Captions read it. It is no setting: the scenario has been read before.
config["configuration_option"] = configuration_option()


# What the runs say of themselves stands on the opening page once it has been written.
report: os.path.abspath(OPENING) if os.path.exists(OPENING) else "../report/workflow.rst"


rule opening:
    input:
        template=str(TEMPLATE),
        runs=collected("runs"),
        scorecard=rules.scorecard.output[0],
        goals=rules.goals.output[0] if BEYOND else [],
    output:
        OPENING,
    log:
        log_of("opening"),
    benchmark:
        benchmark_of("opening")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(15),
    params:
        run_folders=f"{paths.RESULTS}/runs",
        figures={
            name: {
                "title": registry.entry(name).title,
                "category": registry.entry(name).category,
                "rule": figure_rule(name),
            }
            for name in SCENARIO.figures
        },
        code=fingerprint("subjectdp.report.report_opening"),
    script:
        "../scripts/opening.py"
