# The page of the results, and the text that opens `snakemake --report results/NAME/report.html`.

CAPTIONS = WORKFLOW / "report"


# Read by the captions; the scenario has been read before, so that these are no settings of it.
config["configuration_option"] = configuration_option()
config["phrases"] = checked(read_yaml, CAPTIONS / "phrases.yaml")


report: "../report/workflow.rst"


rule results_page:
    input:
        paths.table_file(SCENARIO.name, "runs_summary"),
        paths.table_file(SCENARIO.name, "scorecard"),
        [figure_file(figure, ".svg") for figure in SCENARIO.figures],
    output:
        f"{paths.scenario_dir(SCENARIO.name)}/index.html",
    log:
        log_of("results_page"),
    benchmark:
        benchmark_of("results_page")
    localrule: CLUSTER.light_jobs_local
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(2000, 15),
    params:
        run_folders=f"{PLACE}/runs",
        runs=list(RUNS),
        benchmarks=f"{PLACE}/benchmarks",
        jobs=[
            *(SCENARIO.name, *DATA),
            *(f"{SCENARIO.name}-{figure}" for figure in SCENARIO.figures),
        ],
        figures={
            name: {
                "title": catalogue.entry(name).title,
                "category": catalogue.entry(name).category,
                "caption": catalogue.entry(name).name,
                "rule": figure_rule(name),
            }
            for name in SCENARIO.figures
        },
        tables=SCENARIO_TABLES,
        # The place of the captions must not be compared, what they say must.
        captions=lambda wildcards, input: str(CAPTIONS),
        texts=[
            sha256_of(CAPTIONS / name)
            for name in (
                "phrases.yaml",
                *(f"{catalogue.entry(name).name}.rst" for name in SCENARIO.figures),
            )
        ],
        about=[SCENARIO.description, SCENARIO.synthetic_note],
        template=PAGE_TEMPLATE,
        code=code_of("results_page", "subjectdp.report.results_page"),
    script:
        "../scripts/results_page.py"
