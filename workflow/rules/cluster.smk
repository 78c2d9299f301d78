# With SUBJECTDP_SLURM_LIGHT_JOBS=local the submitting process makes tables and figures itself: they take seconds each,
# and a cluster job would wait in the queue. Included last, because it needs the names of all other rules.

COMPUTED = {"prepare", "partition", "train", "statistics", "audit", "counterexample"}

if CLUSTER.light_jobs_local:
    workflow.localrules(
        *(rule.name for rule in workflow.rules if rule.name not in COMPUTED)
    )
