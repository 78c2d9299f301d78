"""The front page of a scenario's results, ``index.html``: what holds, in one screen, with links to the rest.

From the top: a tile for each verdict, the figure of published and sound ε, three sentences, all figures in small, the
scorecard. What was computed at the papers' scale and what this scenario's runs gave are marked apart everywhere.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.algorithms.registry import mechanism
from subjectdp.errors import DataError, expected
from subjectdp.figures.style import in_order
from subjectdp.io.atomic import write_text
from subjectdp.plan.plan import AccountingMode, PrivacyUnit
from subjectdp.report import page
from subjectdp.results.inputs import read_frame
from subjectdp.results.labels import dataset_name, datasets_in_order, format_epsilon
from subjectdp.results.select import CONDITIONAL_MARK, CONDITIONAL_NOTE, is_conditional
from subjectdp.scorecard.targets import EvidenceKind
from subjectdp.scorecard.verdicts import Verdict, verdict_counts

_SCORE = (
    *("target", "paper", "place", "statement", "verdict", "reason", "unit", "printed", "ours", "low", "high"),
    *("scale", "evidence", "counted"),
)
_RUNS = (
    *(
        "algorithm",
        "variant",
        "label",
        "dataset",
        "mode",
        "synthetic",
        "subjects",
        "silos",
        "epsilon",
        "delta",
    ),
    *("epsilon_as_published", "epsilon_sound_subject", "final_test_accuracy", "predicted_subjects"),
    "subject_guarantee",
)
_DECIDED = (Verdict.REFUTED, Verdict.NOT_PROVABLE, Verdict.DIFFERS, Verdict.REPRODUCED, Verdict.CANNOT_FAIL)
_ORDER = {
    verdict.value: rank
    for rank, verdict in enumerate([*_DECIDED, Verdict.NOT_AT_THIS_SCALE, Verdict.NOT_RUN])
}
_PAPERS_SCALE, _THIS_SCENARIO = "papers' scale", "this scenario"
_FIGURE_OF = re.compile(r"Figure (\d)")
_FRONT_FIGURE = "privacy"

_STYLE = """
<style>
body { max-width: 84rem; margin: 1rem auto; padding: 0 1rem; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.6rem; margin: 0.8rem 0; }
.tile { all: unset; cursor: pointer; flex: 1 1 8rem; min-width: 7.5rem; padding: 0.5rem 0.8rem; border-radius: 0.4rem;
  border-left: 0.4rem solid var(--tone); background: #f5f7f9; }
.tile:focus-visible, .tile[aria-pressed=true] { outline: 2px solid var(--tone); }
.tile b { font-size: 1.7rem; line-height: 1.1; display: block; }
.tile small { color: #555; display: block; }
.two { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.5rem; align-items: start; }
.two ol { padding-left: 1.2rem; } .two li { margin-bottom: 0.7rem; }
figure { margin: 0; } figure img { max-height: 34rem; width: 100%; object-fit: contain; object-position: left; }
figcaption { color: #555; font-size: 0.85rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: 1.2rem 1.5rem; }
.gallery a { text-decoration: none; } .gallery small { color: #555; display: block; overflow-wrap: anywhere; }
.gallery img { display: block; width: 100%; max-height: 13rem; object-fit: cover; object-position: top; }
.refuted { --tone: #b3261e; } .not-provable { --tone: #c77700; } .differs { --tone: #8e4ec6; }
.reproduced { --tone: #18794e; } .cannot-fail, .not-at-this-scale, .not-run { --tone: #8a9097; }
.verdict { white-space: nowrap; color: #fff; background: var(--tone); border-radius: 0.3rem; padding: 0.05rem 0.45rem; }
.scale { white-space: nowrap; font-size: 0.8rem; border: 1px solid #b9c0c7; border-radius: 0.3rem; padding: 0 0.35rem; }
#scores td { white-space: normal; } #scores td.number { white-space: nowrap; }
#scores tr[hidden] { display: none; }
.synthetic { background: #fff4e5; border-left: 0.4rem solid #c77700; padding: 0.4rem 0.8rem; font-style: normal;
  color: #202020; }
@media (max-width: 60rem) { .two { grid-template-columns: minmax(0, 1fr); } }
@media (max-width: 44rem) {
  #scores thead { display: none; }
  #scores tr { display: block; border-bottom: 1px solid #b9c0c7; padding: 0.4rem 0; }
  #scores td { display: block; border: 0; padding: 0.1rem 0; text-align: left; }
  #scores td[data-head]::before { content: attr(data-head) ": "; color: #555; }
}
</style>
"""
_SCRIPT = """
<script>
const tiles = [...document.querySelectorAll(".tile")], rows = [...document.querySelectorAll("#scores tbody tr")];
tiles.forEach(tile => tile.addEventListener("click", () => {
  const chosen = tile.getAttribute("aria-pressed") !== "true";
  tiles.forEach(other => other.setAttribute("aria-pressed", other === tile && chosen));
  rows.forEach(row => { row.hidden = chosen && row.dataset.verdict !== tile.dataset.verdict; });
}));
</script>
"""


@dataclass(frozen=True)
class FrontSources:
    """What the front page is made from."""

    name: str
    description: str
    synthetic_note: str | None
    command: str  # that makes a file of the scenario, with RULE in place of the rule
    runs: Path  # runs.parquet
    shown: Path  # the runs that the figure of published and sound ε shows
    scorecard: Path  # scorecard.csv


Figures = Mapping[str, Mapping[str, str]]
"""``title``, ``category`` and ``rule`` of each figure that the scenario draws."""


def write_front(
    sources: FrontSources, figures: Figures, tables: Mapping[str, str], target: Path | str
) -> None:
    """Writes the front page into the folder of the scenario's results.

    Args:
        sources: what it is made from.
        figures: those that the scenario draws.
        tables: the label of each of its tables.
        target: ``index.html``.

    Raises:
        DataError: a missing or damaged file.
    """
    scores = page.read_table(sources.scorecard)
    missing = [name for name in _SCORE if name not in scores.columns]
    if missing:
        raise expected(f"columns of {sources.scorecard}", missing, "there", DataError)
    runs, shown = (read_frame(path, [*_RUNS]) for path in (sources.runs, sources.shown))
    parts = [
        _STYLE,
        f"<p>{html.escape(sources.description)}</p>",
        f'<p class="synthetic">{html.escape(sources.synthetic_note)}</p>' if sources.synthetic_note else "",
        _tiles(scores),
        f'<div class="{"two" if _FRONT_FIGURE in figures else "one"}">{_figure(figures, Path(target).parent, shown)}'
        f"<div>{_sentences(scores, runs, shown)}</div></div>",
        *_gallery(figures),
        *_scorecard(scores, figures, sources.command),
        *_links(tables),
        _SCRIPT,
    ]
    write_text(target, page.page(f"{sources.name}: published claims and what holds", "\n".join(parts)))


def _tiles(scores: pd.DataFrame) -> str:
    """A button for each verdict with its number by evidence; it narrows the scorecard."""
    counts = verdict_counts(scores)
    tiles = []
    for verdict in sorted(counts.index, key=lambda name: _ORDER[str(name)]):
        row = counts.loc[verdict]
        if row.sum():
            by = ", ".join(f"{kind} {row[kind]}" for kind in counts.columns if row[kind])
            tiles.append(
                f'<button class="tile {_css(verdict)}" data-verdict="{verdict}" aria-pressed="false">'
                f"<b>{row.sum()}</b>{verdict}<small>{by}</small></button>"
            )
    note = f"Of {len(scores)} printed numbers and statements of the papers; what decides them is below each number."
    return f'<div class="tiles">{"".join(tiles)}</div><p><small>{note}</small></p>'


def _figure(figures: Figures, folder: Path, runs: pd.DataFrame) -> str:
    if _FRONT_FIGURE not in figures:
        return ""
    path = folder / "figures" / _FRONT_FIGURE / f"{_FRONT_FIGURE}.svg"
    words = "Published and sound ε of this scenario's runs"
    size = f"{_range(runs['subjects'])} subjects, {_range(runs['silos'])} silos"
    return (
        f'<figure><a href="{_page_of(_FRONT_FIGURE)}"><img alt="{words}" src="{page.data_uri(path)}"></a>'
        f'<figcaption><span class="scale">{_THIS_SCENARIO}</span> {words} ({size}): dashed, the claim; marks, the '
        f"accountant's upper values{_told(runs)}.</figcaption></figure>"
    )


def _sentences(scores: pd.DataFrame, runs: pd.DataFrame, shown: pd.DataFrame) -> str:
    """What is claimed, what holds, what works."""
    sentences = (("Claimed", _claimed(scores)), ("Holds", _holds(shown)), ("Works", _works(runs)))
    items = [f"<li><b>{head}.</b> {text}</li>" for head, text in sentences if text]
    return f"<h2>In three sentences</h2><ol>{''.join(items)}</ol>"


def _claims_subjects(run: Mapping[Any, Any]) -> bool:
    """Whether the paper claims the run's published ε for subjects."""
    variant = run["variant"] if isinstance(run["variant"], str) else None
    facts = mechanism(str(run["algorithm"]), variant, AccountingMode.AS_PUBLISHED)
    return facts.claimed_unit is PrivacyUnit.SUBJECT


def _claimed(scores: pd.DataFrame) -> str:
    claims = scores[
        scores["statement"].str.contains("differentially private") & scores["counted"].astype(bool)
    ]
    counts = claims["verdict"].value_counts()
    found = ", ".join(
        f"{counts[name]} {name}" for name in sorted(counts.index, key=lambda one: _ORDER[str(one)])
    )
    many = "guarantee" if len(claims) == 1 else "guarantees"
    return (
        f"The papers state {len(claims)} {many} of ε per subject or user; at their own scale: {found}."
        if found
        else ""
    )


def _holds(runs: pd.DataFrame) -> str:
    """The sound ε per subject of the runs whose published ε is per subject, on the first data set."""
    dataset = datasets_in_order(runs["dataset"])[0]
    published = runs[(runs["mode"] == "as_published") & (runs["dataset"] == dataset)]
    published = published[published["epsilon_as_published"].notna()]
    published = published[[_claims_subjects(run) for run in published.to_dict("records")]]
    if published.empty:
        return ""
    largest = published.groupby("label")["epsilon_sound_subject"].max()
    finite = largest[largest.map(math.isfinite)]
    marks = {label: CONDITIONAL_MARK * is_conditional(part) for label, part in published.groupby("label")}
    some = ", ".join(
        f"{label} {format_epsilon(float(finite[label]))}{marks[label]}" for label in in_order(finite.index)
    )
    none = ", ".join(label for label in in_order(largest.index) if label not in finite.index)
    told = [f"{some}"] if some else []
    told += [f"none is finite for {none}"] if none else []
    target, name = _range(published["epsilon"]), dataset_name(dataset)
    return (
        f"Upper values of ε per subject, for this scenario's {name} runs published as ε = {target}: "
        f"{'; '.join(told)}{_told(published)}."
    )


def _told(runs: pd.DataFrame) -> str:
    """What the dagger means, where there is one."""
    return f" ({CONDITIONAL_NOTE})" if is_conditional(runs) else ""


def _works(runs: pd.DataFrame) -> str:
    """The most accurate run with a provable ε per subject at its target, on each data set."""
    sound = runs[(runs["mode"] == "sound") & (runs["epsilon_sound_subject"] <= runs["epsilon"] * 1.001)]
    sound = sound[sound["predicted_subjects"].isna()]
    found = []
    for dataset in datasets_in_order(sound["dataset"]):
        group = sound[sound["dataset"] == dataset]
        means = group.groupby(["label", "epsilon"])["final_test_accuracy"].mean().reset_index()
        best = max(means.to_dict("records"), key=lambda row: float(row["final_test_accuracy"]))
        found.append(
            f"{best['label']} keeps ε = {best['epsilon']:g} per subject on {dataset_name(dataset)} at "
            f"{100 * best['final_test_accuracy']:.1f} % test accuracy ({100 * _without_privacy(runs, dataset):.1f} % "
            "without privacy)"
        )
    if not found:
        return "No run of this scenario has a provable ε per subject at its target; see scenario embedded or beyond."
    return f"In this scenario, {'; '.join(found)}."


def _without_privacy(runs: pd.DataFrame, dataset: str) -> float:
    free = runs[(runs["dataset"] == dataset) & (runs["label"] == "FedAvg")]
    return float(free.groupby("subjects")["final_test_accuracy"].mean().max()) if len(free) else math.nan


def _scorecard(scores: pd.DataFrame, figures: Figures, command: str) -> Iterator[str]:
    heads = ("verdict", "statement", "printed", "ours", "decided by", "see", "made by rule")
    yield '<h2 id="scorecard">Scorecard</h2>'
    yield f"<p>Full values and intervals show on hover. Make a row again: <code>{html.escape(command)}</code></p>"
    yield f'<table id="scores"><thead><tr>{"".join(f"<th><button>{head}</button></th>" for head in heads)}</tr></thead>'
    rows = sorted(scores.to_dict("records"), key=lambda row: _ORDER[str(row["verdict"])])
    yield f"<tbody>{''.join(_row(row, figures) for row in rows)}</tbody></table>"


def _row(row: Mapping[Any, Any], figures: Figures) -> str:
    verdict, (link, words, rule) = str(row["verdict"]), _seen_in(row, figures)
    scale = (
        _THIS_SCENARIO if row["evidence"] in (EvidenceKind.TRAINING, EvidenceKind.BOUNDS) else _PAPERS_SCALE
    )
    place = f"{row['paper']}, {row['place']}"
    return (
        f'<tr data-verdict="{verdict}"><td><span class="verdict {_css(verdict)}">{verdict}</span></td>'
        f"<td>{html.escape(str(row['statement']))} <small>({html.escape(place)}): {html.escape(str(row['reason']))}"
        f"</small></td>{_number('printed', row['printed'], row['unit'])}{_ours(row)}"
        f'<td title="{html.escape(str(row["scale"]))}">{row["evidence"]} <span class="scale">{scale}</span></td>'
        f'<td><a href="{link}">{words}</a></td><td><code>{rule}</code></td></tr>'
    )


def _number(head: str, value: Any, unit: object) -> str:
    if not isinstance(value, int | float) or math.isnan(value):
        return f'<td class="number" data-head="{head}">–</td>'
    shown = "∞" if math.isinf(value) else f"{value:,.4g}"
    return f'<td class="number" data-head="{head}" data-value="{value}" title="{value} {_unit(unit)}">{shown}</td>'


def _unit(unit: object) -> str:
    return html.escape(unit) if isinstance(unit, str) else ""


def _ours(row: Mapping[Any, Any]) -> str:
    """Our value; its 95 % interval on hover."""
    cell = _number("ours", row["ours"], row["unit"])
    if any(isinstance(row[key], float) and math.isnan(row[key]) for key in ("low", "high")):
        return cell
    return cell.replace('title="', f'title="95 %: {row["low"]:.4g} to {row["high"]:.4g}; ', 1)


def _seen_in(row: Mapping[Any, Any], figures: Figures) -> tuple[str, str, str]:
    """Link, its words and the rule of the figure that shows the row's number, else of the scorecard's table."""
    drawn_from_runs = row["evidence"] in (EvidenceKind.TRAINING, EvidenceKind.BOUNDS)
    number = _FIGURE_OF.search(str(row["place"])) if drawn_from_runs else None
    suffix = "_v3" if row["paper"] == "v3" else ""
    candidates = [f"figure{number[1]}{suffix}"] if number else []
    if row["paper"] == "joint":
        candidates.append("joint_noise")
    if drawn_from_runs:
        candidates += (
            ["excess_loss"] if row["evidence"] == EvidenceKind.BOUNDS else [f"figure1{suffix}", "figure1"]
        )
    for name in candidates:  # numbers at the papers' scale are in no figure of the scenario's runs
        if name in figures:
            return _page_of(name), html.escape(name.replace("_", " ")), figures[name]["rule"]
    return "tables/scorecard.html", "table", "scorecard"


def _gallery(figures: Figures) -> Iterator[str]:
    """Every figure in small, as a link to its page; the pictures lie beside the front page."""
    if not figures:
        return
    yield '<h2>Figures</h2><div class="gallery">'
    for name, facts in figures.items():
        title, topic, rule = (html.escape(facts[key]) for key in ("title", "category", "rule"))
        yield (
            f'<a href="{_page_of(name)}"><img loading="lazy" alt="" src="figures/{name}/{name}.svg">{title}'
            f"<small>{topic}; <code>{rule}</code></small></a>"
        )
    yield "</div>"


def _links(tables: Mapping[str, str]) -> Iterator[str]:
    yield "<h2>Tables</h2><ul>"
    for name, label in tables.items():
        yield f'<li><a href="tables/{name}.html">{html.escape(label)}</a></li>'
    yield '<li><a href="report.html">Snakemake\'s report</a>: the history of every file, machine, software</li></ul>'


def _page_of(figure: str) -> str:
    return f"figures/{figure}/{figure}.html"


def _css(verdict: object) -> str:
    return str(verdict).replace(" ", "-")


def _range(values: pd.Series) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"
