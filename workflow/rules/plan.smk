# Cost and privacy of the scenario before it is run: `snakemake --cores 1 plan --configfile ...`, or `make plan`.


# No outputs: the plan depends on which runs and partitions exist, and is printed anew each time.
rule plan:
    log:
        log_of("plan"),
    localrule: True
    conda:
        "../envs/pipeline.yaml"
    threads: 8  # at most: Snakemake gives as many as --cores says
    params:
        scenario=SETTINGS,
        results=PLACE,
    script:
        "../scripts/plan.py"
