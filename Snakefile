# Subject-granular differential privacy in federated learning: from raw data to the papers' figures.
#   snakemake --cores 2                                                    the embedded scenario
#   snakemake --cores 2 --configfile config/scenarios/NAME.yaml            another one; more files are overlays
#   snakemake --cores 2 figure1 --configfile config/scenarios/paper.yaml   one figure
from snakemake.utils import min_version

min_version("9.0")


# The default scenario is loaded only if no other is given: Snakemake would merge the two.
if "name" not in config:

    configfile: "config/scenarios/embedded.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/analysis.smk"
include: "workflow/rules/audit.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/cluster.smk"


# The default target, although it comes last: Snakemake never chooses an included rule.
rule all:
    input:
        # Finished tables hide a deleted run; listed here, it is trained again.
        rules.collect.input,
        rules.collect.output,
        rules.runs_summary.output,
        rules.scorecard.output,
        rules.opening.output,
        rules.statistics_table.output if SAMPLED else [],
        rules.table1.output if JOINT else [],
        [rules.leads.output, rules.goals.output] if BEYOND else [],
        [
            figure_file(figure, suffix)
            for figure in SCENARIO.figures
            for suffix in (*catalogue.SUFFIXES, ".html")
        ],
