"""The public API: what ``import subjectdp`` offers. It needs the core's packages only: no pandas, YAML or Snakemake."""
