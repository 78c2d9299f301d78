# One job a figure, whatever the figure needs; `snakemake figure1` is a target for each figure of the scenario.
from subjectdp.analysis import registry

FIGURE_DIR = paths.figure_dir(SCENARIO.name, "{figure}")
SHARED_INPUTS = {
    name: f"{paths.scenario_dir(SCENARIO.name)}/{name}.parquet"
    for name in ("runs", "rounds", "steps", "statistics")
}


def figure_inputs(wildcards):
    """Exactly the tables that the figure reads, by name."""
    needs = registry.entry(wildcards.figure).needs
    inputs = {name: path for name, path in SHARED_INPUTS.items() if name in needs}
    if "partitions" in needs:
        inputs["partitions"] = [
            paths.partition_file(partition_id, "partition.json")
            for partition_id in PARTITIONS
        ]
    return inputs


rule figure:
    input:
        unpack(figure_inputs),
    output:
        report(
            FIGURE_DIR + "/{figure}.svg",
            caption="../report/{figure}.rst",
            category=lambda wildcards: registry.entry(wildcards.figure).category,
            labels=lambda wildcards: {
                "figure": registry.entry(wildcards.figure).title
            },
        ),
        [FIGURE_DIR + "/{figure}" + suffix for suffix in (".png", ".csv", ".json")],
    log:
        log_of("figure", f"{SCENARIO.name}-{{figure}}"),
    benchmark:
        benchmark_of("figure", f"{SCENARIO.name}-{{figure}}")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 15 * attempt,
    params:
        folder=FIGURE_DIR,
        code=lambda wildcards: fingerprint(registry.entry(wildcards.figure).module_path),
    script:
        "../scripts/figure.py"


for figure_name in SCENARIO.figures:

    rule:
        name:
            figure_name
        input:
            expand(rules.figure.output, figure=figure_name),
