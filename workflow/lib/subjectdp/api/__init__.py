"""The public API: what ``import subjectdp`` offers. All but ``SubjectRelease`` needs the core's packages alone."""
