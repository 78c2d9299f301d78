# One rule for each figure of the scenario, all alike: `snakemake figure1`, and `snakemake figure_privacy` for names that
# do not begin with "figure". A single rule with a wildcard could not have a caption for each figure.

for figure in SCENARIO.figures:

    rule:
        name:
            figure_rule(figure)
        input:
            **figure_inputs(figure),
        output:
            in_report(figure),
            [figure_file(figure, suffix) for suffix in catalogue.SUFFIXES[1:]],
        log:
            log_of("figure", f"{SCENARIO.name}-{figure}"),
        benchmark:
            benchmark_of("figure", f"{SCENARIO.name}-{figure}")
        localrule: CLUSTER.light_jobs_local
        conda:
            "../envs/pipeline.yaml"
        resources:
            **resources_for(2000, 15),
        params:
            figure=figure,
            # read from the catalogue, which is not part of `code`
            shown=repr(catalogue.entry(figure).shown),
            builder=catalogue.entry(figure).builder,
            code=code_of("figure", "figure", catalogue.entry(figure).module_path),
        script:
            "../scripts/figure.py"
