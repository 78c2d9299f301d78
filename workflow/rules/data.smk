# From a source (download, LEAF's JSON, generated archives) to the partition that all algorithms of a seed share.

SOURCE_RECORD = f"{paths.source_dir('{data_key}')}/source.json"


# What the sources hold, read once.
CONTENT = {key: checked(source_content, data, PLACE) for key, data in DATA.items()}


# The archives are not outputs: Snakemake deletes the outputs of a failed job, but an interrupted download must remain to
# be resumed. The output is the list of archives with their hashes, written last.
rule fetch:
    output:
        SOURCE_RECORD,
    log:
        log_of("fetch", "{data_key}"),
    benchmark:
        benchmark_of("fetch", "{data_key}")
    priority: 1  # all trainings wait for the data
    localrule: True
    conda:
        "../envs/pipeline.yaml"
    params:
        data=settings(DATA, "data_key"),
        content=lambda wildcards: CONTENT[wildcards.data_key],
        addresses=lambda wildcards: checked(source_addresses, DATA[wildcards.data_key]),
        code=lambda wildcards: read_code("script:fetch", *fetching(wildcards)),
    script:
        "../scripts/fetch.py"


rule prepare:
    input:
        source_record,
    output:
        paths.prepared_files("{data_key}"),
    log:
        log_of("prepare", "{data_key}"),
    benchmark:
        benchmark_of("prepare", "{data_key}")
    priority: 1
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(4000, 60),
    params:
        data=settings(DATA, "data_key"),
        content=lambda wildcards: CONTENT[wildcards.data_key],
        code=preparing_code,
    script:
        "../scripts/prepare.py"


# A partition takes seconds: many share a cluster job, one after another.
shared_partitions = "partitions" if CLUSTER.runs_per_job > 1 else None


# From here on one file represents each folder: the one written last, with the hashes of the others, so that the library
# refuses a folder that was changed. Fewer files keep a dry run of thousands of runs fast.
rule partition:
    input:
        lambda wildcards: paths.prepared_file(
            PARTITIONS[wildcards.partition_id].data_key, "meta.json"
        ),
    output:
        paths.partition_file("{partition_id}", "partition.json"),
    log:
        paths.partition_file("{partition_id}", "partition.log"),
    group:
        shared_partitions
    conda:
        "../envs/pipeline.yaml"
    resources:
        **resources_for(2000, 1),
        partition_slot=1,
    params:
        run=settings(PARTITIONS, "partition_id"),
        code=code_of("partition", "partition"),
    script:
        "../scripts/partition.py"
