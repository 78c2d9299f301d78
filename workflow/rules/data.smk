# From a source (download, LEAF's JSON, generated archives) to the federation that all algorithms of a seed share.

SOURCE_RECORD = f"{paths.source_dir('{data_key}')}/source.json"


PREPARING_CODE = {
    name: fingerprint(f"prepare:{name}")
    for name in {data.dataset for data in DATA.values()}
}


# The archives themselves are no outputs: Snakemake deletes the outputs of a failed job, and a download that broke off
# has to be there to be resumed. The list of them, with their hashes, is written last.
rule fetch:
    input:
        local_source,
    output:
        SOURCE_RECORD,
    log:
        log_of("fetch", "{data_key}"),
    benchmark:
        benchmark_of("fetch", "{data_key}")
    localrule: True
    conda:
        "../../envs/pipeline.yaml"
    params:
        data=settings(DATA, "data_key"),
        code=fingerprint("fetch"),
    script:
        "../scripts/fetch.py"


rule prepare:
    input:
        SOURCE_RECORD,
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
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        data=settings(DATA, "data_key"),
        code=lambda wildcards: PREPARING_CODE[DATA[wildcards.data_key].dataset],
    script:
        "../scripts/prepare.py"


# From here on a folder stands for itself by the file that is written last: it is there only when the others are whole,
# and carries their hashes, so that the library refuses a folder that was changed. At thousands of runs it keeps the
# graph small: a dry run's time goes with the number of files.
rule partition:
    input:
        lambda wildcards: paths.prepared_file(
            PARTITIONS[wildcards.partition_id].data_key, "meta.json"
        ),
    output:
        paths.partition_file("{partition_id}", "partition.json"),
    log:
        log_of("partition", "{partition_id}"),
    benchmark:
        benchmark_of("partition", "{partition_id}")
    conda:
        "../../envs/pipeline.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(30),
    params:
        run=settings(PARTITIONS, "partition_id"),
        code=fingerprint("partition"),
    script:
        "../scripts/partition.py"
