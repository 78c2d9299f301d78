"""Draws mini-batches at the papers' settings, without training."""

from pathlib import Path

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.data.statistics import paper_scale_statistics, train_counts
from subjectdp.io.atomic import write_frame
from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0]):
    counts = [train_counts(Path(meta).parent) for meta in snakemake.input]
    batches = paper_scale_statistics(seed=0, shakespeare_items=next(iter(counts), None))
    write_frame(snakemake.output[0], batches)
