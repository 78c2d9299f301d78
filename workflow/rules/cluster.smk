# Where a cluster's site prefers it (SUBJECTDP_SLURM_LIGHT_JOBS=local), the submitting process makes tables and figures
# itself: seconds each, where a cluster job would wait for its turn. Included last: it needs the other rules' names.

COMPUTED = {"prepare", "partition", "train", "statistics", "audit", "counterexample"}

if CLUSTER.light_jobs_local:
    workflow.localrules(
        *(rule.name for rule in workflow.rules if rule.name not in COMPUTED)
    )
