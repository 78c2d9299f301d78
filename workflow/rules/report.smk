# The report itself is `snakemake --report results/NAME/report.html`, after the run; here is what only the report needs.
report: "../report/workflow.rst"
