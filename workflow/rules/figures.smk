# A rule for each figure of the scenario, all alike: `snakemake figure1`, and `snakemake figure_privacy` where the name
# does not say that it is a figure. (One rule with a wildcard would do, but for the report's captions.)

SAMPLED = [
    name for name in SCENARIO.figures if "statistics" in registry.entry(name).needs
]
CONVEX = [name for name in SCENARIO.figures if "utility" in registry.entry(name).needs]
JOINT = [name for name in SCENARIO.figures if name.startswith("joint")]


for figure in SCENARIO.figures:

    rule:
        name:
            figure_rule(figure)
        input:
            **figure_inputs(figure),
        output:
            in_report(figure, ".svg", "picture"),
            [figure_file(figure, suffix) for suffix in registry.SUFFIXES[1:]],
            in_report(figure, ".html", "panels and values"),
        log:
            log_of("figure", f"{SCENARIO.name}-{figure}"),
        benchmark:
            benchmark_of("figure", f"{SCENARIO.name}-{figure}")
        conda:
            "../../envs/pipeline.yaml"
        resources:
            mem_mb=grows(2000),
            runtime=grows(15),
        params:
            figure=figure,
            code=fingerprint("figure", registry.FIGURES[figure].module_path),
        script:
            "../scripts/figure.py"
