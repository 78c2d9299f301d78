# What the scenario will cost and promise, before it is run: `snakemake --cores 1 plan --configfile ...`, or `make plan`.
# It has no outputs for Snakemake to compare: what is known (finished runs, partitions) changes, and the plan with it.


rule plan:
    log:
        log_of("plan"),
    localrule: True
    conda:
        "../../envs/pipeline.yaml"
    params:
        scenario=SETTINGS,
        results=paths.RESULTS,
    script:
        "../scripts/plan.py"
