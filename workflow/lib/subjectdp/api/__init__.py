"""The public API: what ``import subjectdp`` offers. Needs the core's packages only (no pandas, no YAML, no workflow)."""
