"""``subjectdp statement``: one page on a run's privacy for an ethics board or a data protection officer."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subjectdp.accounting.plan_run import plan_from_dict
from subjectdp.accounting.statements import privacy_statements
from subjectdp.cli.parser import add_results
from subjectdp.cli.run_folders import find_run, read_manifest
from subjectdp.errors import DataError
from subjectdp.plan.plan import PrivacyPlan


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "statement",
        description="One page in plain language: who is protected, against whom, how well, what that means for a "
        "person, what must be true, and what is not covered (the questions of NIST SP 800-226).",
    )
    help_ = "id of a finished run, or the beginning of it; or a silo's ledger file (JSON)"
    parser.add_argument("run_id", metavar="RUN", help=help_)
    add_results(parser)
    parser.add_argument("--output", metavar="FILE", help="write to FILE, by its suffix .md, .html or .pdf")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the page as Markdown, or writes it."""
    if options.run_id.endswith(".json"):
        record = _read(Path(options.run_id))
    else:
        record = read_manifest(find_run(Path(options.results), options.run_id))
    plan = plan_from_dict(record["plan"])
    privacy = record.get("privacy") or privacy_statements(plan, over_rounds=False)
    write_page(plan, privacy, f"run {record.get('run_id', options.run_id)}", options.output)


def write_page(plan: PrivacyPlan, privacy: Mapping[str, Any], of: str, output: str | None) -> None:
    """The statement on a plan: printed as Markdown, or written to ``output``."""
    # here: the template and the PDF need packages of the workflow
    from subjectdp.report.statement import rendered, statement_sections, write_statement

    sections, title = statement_sections(plan, privacy, of), f"Privacy statement: {plan.mechanism.title}"
    if output is None:
        print(rendered(sections, title))
    else:
        write_statement(Path(output), sections, title)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        plan_from_dict(content["plan"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"Expected {file} to hold a plan, as a silo's ledger does: {problem}.") from problem
    return dict(content)
