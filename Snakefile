# Subject-granular differential privacy in federated learning: from raw data to the papers' figures.
#   snakemake --cores 2                                                    the embedded scenario
#   snakemake --cores 2 --configfile config/scenarios/NAME.yaml            another one; more files are overlays
#   snakemake --cores 2 figure1 --configfile config/scenarios/paper.yaml   one figure
# Other workflows import workflow/Snakefile as a module (docs/running.md).


include: "workflow/Snakefile"


# Snakemake never chooses a rule of an included file.
workflow.default_target = "all"
