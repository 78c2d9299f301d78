# Tables of the scenario: one rule for each, all alike. A table is a CSV and a sortable page of the report.

SAMPLED = [
    name for name in SCENARIO.figures if "statistics" in catalogue.entry(name).needs
]
CONVEX = [name for name in SCENARIO.figures if "utility" in catalogue.entry(name).needs]
JOINT = [name for name in SCENARIO.figures if name.startswith("joint")]
# The lead of SubjectRelease, where the scenario runs it on subjects that lie evenly over their silos.
LEADING = any(name.startswith("beyond") for name in SCENARIO.figures) and any(
    run.algorithm.name == "subject_release"
    and (run.partition.distribution != "power" or run.partition.alpha == 1)
    for run in RUNS.values()
)

TABLES = {
    "runs_summary": {
        "when": True,
        "inputs": {"runs": collected("runs")},
        "category": "Tables",
        "label": "Runs: accuracy, published and sound ε, cost",
        "title": f"Runs of {SCENARIO.name}",
        "code": [],
    },
    "statistics": {
        "when": SAMPLED,
        "inputs": {"statistics": collected("statistics")},
        "category": "Tables",
        "label": "Mini-batches at the papers' scale",
        "title": "Mini-batches at the papers' scale",
        "code": [],
    },
    "table1": {
        "when": JOINT,
        "inputs": {},
        "category": "Tables",
        "label": "Joint noise: the paper's Table 1",
        "title": "Joint noise: the paper's Table 1",
        "code": ["subjectdp.accounting.table1"],
    },
    "leads": {
        "when": LEADING,
        "inputs": {"runs": collected("runs")},
        "category": "Beyond the papers",
        "label": "Sound algorithms side by side",
        "title": f"Sound algorithms side by side: {SCENARIO.name}",
        "code": [],
    },
    # The papers' numbers beside the scenario's, with verdicts (docs/findings.md).
    "scorecard": {
        "when": True,
        "inputs": {
            "targets": judged_by("targets"),
            "runs": collected("runs"),
            "rounds": collected("rounds"),
            "accounting": collected("accounting") if SAMPLED else [],
            "statistics": collected("statistics") if SAMPLED else [],
            "utility": collected("utility") if CONVEX else [],
        },
        "category": "Scorecard",
        "label": "The papers' numbers, ours, verdicts",
        "title": f"Scorecard of {SCENARIO.name}",
        "code": ["subjectdp.report.scorecard"],
    },
}

# The labels of those that the scenario has.
SCENARIO_TABLES = {
    table: about["label"] for table, about in TABLES.items() if about["when"]
}


def table_rule(table):
    """The name of the rule that makes a table; `statistics` is the rule that draws the mini-batches."""
    return "statistics_table" if table == "statistics" else table


for table, about in TABLES.items():

    rule:
        name:
            table_rule(table)
        input:
            **about["inputs"],
        output:
            paths.table_file(SCENARIO.name, table),
            page_of(table, about["category"], about["label"]),
        log:
            log_of(table_rule(table)),
        benchmark:
            benchmark_of(table_rule(table))
        localrule: CLUSTER.light_jobs_local
        conda:
            "../envs/pipeline.yaml"
        resources:
            **resources_for(2000, 15),
        params:
            table=table,
            title=about["title"],
            template=PAGE_TEMPLATE,
            code=code_of("table", *about["code"], "report"),
        script:
            "../scripts/table.py"
