# From a source (download, LEAF's JSON, generated archives) to the federation that all algorithms of a seed share.


def local_source(wildcards):
    """LEAF's own output is an input like any other: a changed file is prepared again."""
    data = DATA[wildcards.data_key]
    known = data.source == "leaf_json" and data.path is not None
    return [data.path] if known and os.path.exists(data.path) else []


# The archives themselves are no outputs: Snakemake deletes the outputs of a failed job, and a download that broke off
# has to be there to be resumed. The list of them, with their hashes, is written last.
rule fetch:
    input:
        local_source,
    output:
        paths.source_dir("{data_key}") + "/source.json",
    log:
        log_of("fetch", "{data_key}"),
    benchmark:
        benchmark_of("fetch", "{data_key}")
    localrule: True
    conda:
        "../../envs/pipeline.yaml"
    params:
        folder=paths.source_dir("{data_key}"),
        data=settings(DATA, "data_key"),
        code=fingerprint("fetch"),
    script:
        "../scripts/fetch.py"


rule prepare:
    input:
        paths.source_dir("{data_key}") + "/source.json",
    output:
        paths.prepared_files("{data_key}"),
    log:
        log_of("prepare", "{data_key}"),
    benchmark:
        benchmark_of("prepare", "{data_key}")
    conda:
        "../../envs/pipeline.yaml"
    threads: 2
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=lambda wildcards, attempt: 60 * attempt,
    params:
        source=paths.source_dir("{data_key}"),
        folder=paths.prepared_dir("{data_key}"),
        data=settings(DATA, "data_key"),
        code=fingerprint("prepare"),
    script:
        "../scripts/prepare.py"


rule partition:
    input:
        lambda wildcards: paths.prepared_files(
            PARTITIONS[wildcards.partition_id].data_key
        ),
    output:
        paths.partition_files("{partition_id}"),
    log:
        log_of("partition", "{partition_id}"),
    benchmark:
        benchmark_of("partition", "{partition_id}")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=lambda wildcards, attempt: 30 * attempt,
    params:
        prepared=lambda wildcards: paths.prepared_dir(
            PARTITIONS[wildcards.partition_id].data_key
        ),
        folder=paths.partition_dir("{partition_id}"),
        run=settings(PARTITIONS, "partition_id"),
        code=fingerprint("partition"),
    script:
        "../scripts/partition.py"
