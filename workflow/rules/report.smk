# The page of the results, and the text that opens `snakemake --report results/NAME/report.html`.

PHRASES = WORKFLOW / "report" / "phrases.yaml"


# Read by the captions; the scenario has been read before, so that these are no settings of it.
config["configuration_option"] = configuration_option()
config["phrases"] = checked(read_yaml, PHRASES)


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
                "rule": figure_rule(name),
            }
            for name in SCENARIO.figures
        },
        tables=SCENARIO_TABLES,
        texts=[
            sha256_of(path)
            for path in (PHRASES, *map(catalogue.caption, SCENARIO.figures))
        ],
        # a function: Snakemake takes braces in a plain text for wildcards
        about=lambda wildcards: [SCENARIO.description, SCENARIO.synthetic_note],
        template=PAGE_TEMPLATE,
        code=code_of("results_page", "subjectdp.report.results_page"),
    script:
        "../scripts/results_page.py"
