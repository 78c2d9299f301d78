# One job a figure, whatever the figure needs. Each figure of the scenario is a target of its own: `snakemake figure1`,
# and `snakemake figure_privacy` where the name does not say that it is a figure.

FIGURE_DIR = paths.figure_dir(SCENARIO.name, "{figure}")
SAMPLED = [
    name for name in SCENARIO.figures if "statistics" in registry.entry(name).needs
]


rule figure:
    input:
        unpack(figure_inputs),
    output:
        report(
            f"{FIGURE_DIR}/{{figure}}.svg",
            caption="../report/{figure}.rst",
            category=lambda wildcards: registry.entry(wildcards.figure).category,
            labels=lambda wildcards: {
                "figure": registry.entry(wildcards.figure).title
            },
        ),
        [f"{FIGURE_DIR}/{{figure}}{suffix}" for suffix in registry.SUFFIXES[1:]],
    log:
        log_of("figure", f"{SCENARIO.name}-{{figure}}"),
    benchmark:
        benchmark_of("figure", f"{SCENARIO.name}-{{figure}}")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        code=lambda wildcards: fingerprint(f"figure:{wildcards.figure}"),
    script:
        "../scripts/figure.py"


for figure_name in SCENARIO.figures:

    rule:
        name:
            (
                figure_name
                if figure_name.startswith("figure")
                else f"figure_{figure_name}"
            )
        input:
            expand(rules.figure.output, figure=figure_name),
