"""The front page: verdicts, sentences and rows are what the tables say, and each scale is marked."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from report.browser import find_browser, visit
from subjectdp.report.front import FrontSources, write_front

FIGURES = {
    "privacy": {"title": "Published and sound ε", "category": "Privacy", "rule": "figure_privacy"},
    "figure1": {"title": "Figure 1", "category": "Paper v1", "rule": "figure1"},
}

TABLES = {"runs_summary": "Runs & their cost", "table1": "Table 1"}


def run(label: str, algorithm: str, variant: str | None, **known: object) -> dict[str, object]:
    facts = {"dataset": "femnist", "mode": "as_published", "synthetic": True, "subjects": 60, "silos": 4}
    epsilons = {
        "epsilon": 4.0,
        "delta": 1e-5,
        "epsilon_as_published": 4.0,
        "epsilon_sound_subject": float("nan"),
        "subject_guarantee": "conditional" if label == "UserLDP" else None,
    }
    names = {"label": label, "algorithm": algorithm, "variant": variant, "predicted_subjects": float("nan")}
    return {**facts, **epsilons, **names, "final_test_accuracy": 0.5, **known}


RUNS = [
    run("FedAvg", "fed_avg", None, epsilon_as_published=float("nan"), final_test_accuracy=0.8),
    run("LocalItemDP", "local_item_dp", None, epsilon_sound_subject=687.0),  # claims nothing for subjects
    run("UserLDP", "user_ldp", None, epsilon_sound_subject=11.7),
    run("LocalGroupDP", "local_group_dp", None),
    run("SubjectRelease", "subject_release", None, mode="sound", epsilon_as_published=float("nan"),
        epsilon_sound_subject=4.0, final_test_accuracy=0.7),
    run("Spoilt", "capped_item_dp", None, mode="sound", epsilon_sound_subject=9.0, final_test_accuracy=0.9),
]  # fmt: skip


def score(statement: str, verdict: str, evidence: str, **known: object) -> dict[str, object]:
    facts = {
        "target": statement,
        "paper": "v1",
        "place": "section 4.1, Figure 1",
        "reason": "because",
        "unit": "%",
    }
    numbers = {"printed": 4.0, "ours": 7.5, "low": float("nan"), "high": float("nan"), "scale": "somewhere"}
    return {
        **facts,
        **numbers,
        "statement": statement,
        "verdict": verdict,
        "evidence": evidence,
        "counted": True,
        **known,
    }


SCORES = [
    score("HiGradAvgDP reaches 75.24 %", "not at this scale", "training", low=6.5, high=8.5),
    score("UserLDP is (4, 1e-5)-differentially private", "refuted", "accounting", ours=float("inf")),
    score("LocalGroupDP is <differentially private>", "not provable", "accounting"),
    score("a repetition is differentially private", "refuted", "accounting", counted=False),
]


@pytest.fixture
def front(tmp_path: Path) -> Path:
    """A front page with its figures beside it."""
    for name in FIGURES:
        picture = tmp_path / f"figures/{name}/{name}.svg"
        picture.parent.mkdir(parents=True)
        picture.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"/>')
    pd.DataFrame(RUNS).to_parquet(tmp_path / "runs.parquet")
    pd.DataFrame(SCORES).to_csv(tmp_path / "scorecard.csv", index=False)
    files = {name: tmp_path / f"{name}.parquet" for name in ("runs", "shown")}
    pd.DataFrame(RUNS).to_parquet(files["shown"])
    sources = FrontSources(
        "embedded",
        "All of it.",
        "Generated.",
        "snakemake RULE",
        **files,
        scorecard=tmp_path / "scorecard.csv",
    )
    write_front(sources, FIGURES, TABLES, tmp_path / "index.html")
    return tmp_path / "index.html"


def words(page: Path) -> str:
    text = re.sub(r"<(style|script)>.*?</\1>", "", page.read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_three_sentences(front: Path) -> None:
    """Does the claim hold? A reader finds it without a click."""
    text = words(front)
    assert (
        "The papers state 2 guarantees of ε per subject or user; at their own scale: 1 refuted, 1 not provable."
        in text
    )
    assert (
        "FEMNIST runs published as ε = 4: UserLDP 11.7†; none is finite for LocalGroupDP († conditional: no cap"
        in text
    )
    assert "marks, the accountant's upper values († conditional" in text
    assert (
        "SubjectRelease keeps ε = 4 per subject on FEMNIST at 70.0 % test accuracy (80.0 % without privacy)"
        in text
    )


def test_tiles_count_what_is_counted_by_evidence(front: Path) -> None:
    tiles = re.findall(
        r'data-verdict="([^"]+)" aria-pressed="false"><b>(\d+)</b>[^<]*<small>([^<]*)', front.read_text()
    )
    assert tiles == [
        ("refuted", "1", "accounting 1"),
        ("not provable", "1", "accounting 1"),
        ("not at this scale", "1", "training 1"),
    ]


def test_rows_hold_printed_and_ours_with_their_scale_and_link(front: Path) -> None:
    page = front.read_text()
    rows = re.findall(r'<tr data-verdict="([^"]+)">(.*?)</tr>', page)
    assert [verdict for verdict, _ in rows] == ["refuted", "refuted", "not provable", "not at this scale"]
    by_accounting, by_training = rows[0][1], rows[-1][1]
    assert ">4<" in by_accounting and ">∞<" in by_accounting and "papers' scale" in by_accounting
    assert "tables/scorecard.html" in by_accounting and "figures/" not in by_accounting
    assert "this scenario" in by_training and 'href="figures/figure1/figure1.html"' in by_training
    assert "95 %: 6.5 to 8.5" in by_training and "<code>figure1</code>" in by_training
    assert "&lt;differentially private&gt;" in page


def test_every_figure_is_shown_and_every_table_linked(front: Path) -> None:
    text = front.read_text()
    for name in FIGURES:
        link, picture = f'<a href="figures/{name}/{name}.html">', f'src="figures/{name}/{name}.svg"'
        assert re.search(f"{re.escape(link)}<img [^>]*{re.escape(picture)}>", text)
    assert '<a href="tables/runs_summary.html">Runs &amp; their cost</a>' in text
    assert '<a href="tables/table1.html">Table 1</a>' in text


@pytest.mark.slow
@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome here")
def test_a_tile_narrows_the_scorecard_and_nothing_is_cut_off(front: Path) -> None:
    script = """
      const shown = () => [...document.querySelectorAll("#scores tbody tr")].filter(row => !row.hidden).length;
      const seen = [shown()], tile = document.querySelector(".tile");
      tile.click(); seen.push(shown());
      tile.click(); seen.push(shown());
      document.querySelectorAll("#scores th button")[2].click();
      const drawn = [...document.querySelectorAll("img")].map(image => image.complete && image.naturalWidth);
      return {seen, drawn, wide: document.documentElement.scrollWidth <= window.innerWidth};
    """
    found = visit(str(find_browser()), front, script)
    assert (found.problems, found.requests) == ([], [])
    assert found.found == {"seen": [4, 2, 4], "drawn": [40, 40, 40], "wide": True}
