"""Table 1 of the joint-noise paper, with the tight and the provable ε beside it."""

import pandas as pd

from subjectdp.accounting.table1 import rows_as_dicts
from subjectdp.io.atomic import write_frame
from subjectdp.io.joblog import job_log
from subjectdp.report.report import write_html_table

with job_log(snakemake.log[0]):
    write_frame(snakemake.output[0], pd.DataFrame(rows_as_dicts()))
    write_html_table(snakemake.output[0], snakemake.output[1], snakemake.params.title)
