# Cost and privacy of the scenario before it is run: `snakemake --cores 1 plan --configfile ...`, or `make plan`.


# No outputs: the plan depends on which runs and partitions exist, and is printed anew each time.
rule plan:
    log:
        log_of("plan"),
    localrule: True
    threads: 8  # at most: Snakemake gives as many as --cores says
    conda:
        "../envs/pipeline.yaml"
    params:
        scenario=SETTINGS,
        results=PLACE,
    script:
        "../scripts/plan.py"
