"""Executes the counterexample to joint noise over several local steps."""

import subjectdp.io.job_start  # noqa: F401 (first: loading costs less)
from subjectdp.auditing.counterexample import table
from subjectdp.io.atomic import write_frame
from subjectdp.io.job_log import job_log
from subjectdp.report.tables import write_table_page

with job_log(snakemake.log[0]):
    cases = table(runs=snakemake.params.runs)
    for target in snakemake.output[:2]:
        write_frame(target, cases)
    write_table_page(snakemake.output[1], snakemake.output[2], snakemake.params.title)
