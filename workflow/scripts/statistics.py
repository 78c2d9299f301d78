"""Counts the mini-batches of the papers' settings from sampling alone."""

from subjectdp.data.statistics import paper_scale_statistics, summary_table, train_counts
from subjectdp.io.atomic import write_frame
from subjectdp.io.joblog import job_log

with job_log(snakemake.log[0]):
    counts = [train_counts(folder) for folder in snakemake.params.prepared]
    batches = paper_scale_statistics(seed=0, shakespeare_items=counts[0] if counts else None)
    write_frame(snakemake.output[0], batches)
    write_frame(snakemake.output[1], summary_table(batches))
