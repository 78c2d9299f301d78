# The front page of the results, and the opening page of `snakemake --report results/NAME/report.html`.

OPENING = f"{paths.scenario_dir(SCENARIO.name)}/opening.rst"
TEMPLATE = WORKFLOW / "report" / "workflow.rst"


# Read by the captions; the scenario has been read before, so that these are no settings of it.
config["configuration_option"] = configuration_option()
config["phrases"] = checked(read_yaml, TEMPLATE.with_name("phrases.yaml"))


# Until the opening page is written, its template stands in for it.
WRITTEN = Path(placed.scenario_dir(SCENARIO.name), "opening.rst").absolute()


report: str(WRITTEN) if WRITTEN.exists() else "../report/workflow.rst"


rule opening:
    input:
        runs=collected("runs"),
        scorecard=rules.scorecard.output[0],
        figure=figure_file("privacy", ".svg") if "privacy" in SCENARIO.figures else [],
        shown=figure_inputs("privacy")["runs"] if "privacy" in SCENARIO.figures else [],
    output:
        OPENING,
        f"{paths.scenario_dir(SCENARIO.name)}/index.html",
    log:
        log_of("opening"),
    benchmark:
        benchmark_of("opening")
    localrule: CLUSTER.light_jobs_local
    conda:
        "../envs/pipeline.yaml"
    resources:
        **asks(2000, 15),
    params:
        run_folders=f"{PLACE}/runs",
        figures={
            name: {
                "title": catalogue.entry(name).title,
                "category": catalogue.entry(name).category,
                "rule": figure_rule(name),
            }
            for name in SCENARIO.figures
        },
        tables=SCENARIO_TABLES,
        # The place of the template must not be compared, what it says must.
        template=lambda wildcards, input: str(TEMPLATE),
        template_sha256=sha256_of(TEMPLATE),
        about=lambda wildcards, input: {
            "name": SCENARIO.name,
            "description": SCENARIO.description,
            "synthetic_note": SCENARIO.synthetic_note,
            "command": f"snakemake --cores all RULE {configuration_option()}",
        },
        code=code_of(
            "opening",
            "subjectdp.report.opening",
            "subjectdp.report.front",
        ),
    script:
        "../scripts/opening.py"
