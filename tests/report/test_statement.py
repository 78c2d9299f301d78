"""The page for an ethics board: its numbers, its warnings, and its three formats."""

import json
import math
from pathlib import Path

import pytest
from scipy.stats import norm

from accounting.plans import JOINT, LOCAL_ITEM, plan, sound
from cli.commands import run
from subjectdp.accounting.statements import privacy_statements
from subjectdp.io.atomic import sealed
from subjectdp.plan.plan import Mechanism
from subjectdp.report.statement import FALSE_ALARMS, best_guess, most_found, statement_sections

COMMAND = (
    "account --algorithm capped_item_dp --rounds 20 --steps-per-round 5 --sampling-probability 0.05 "
    "--max-items-per-subject 4 --silos 3 --silos-per-subject 2 --epsilon 2"
)
PLAN = COMMAND.split()


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_no_gaussian_beats_the_stated_risk(mu: float) -> None:
    """A Gaussian release of a person: the best test is known, and no better than its (ε, δ) is said to allow."""
    for epsilon in (0.1, 1.0, 4.0):
        delta = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        assert norm.cdf(mu / 2) <= best_guess(epsilon, delta)
        assert norm.cdf(norm.ppf(FALSE_ALARMS) + mu) <= most_found(epsilon, delta)


def test_known_risks() -> None:
    assert best_guess(0.0, 0.0) == 0.5 and most_found(0.0, 0.0) == FALSE_ALARMS
    assert best_guess(math.log(3), 0.0) == pytest.approx(0.75)
    assert best_guess(0.0, 1.0) == 1.0 and most_found(1e4, 0.0) == 1.0


def test_the_page_answers_the_questions_in_three_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix in ("md", "html", "pdf"):
        assert run(capsys, *PLAN, "--statement", str(tmp_path / f"page.{suffix}"))[0] == 0
    markdown, html = ((tmp_path / f"page.{suffix}").read_text() for suffix in ("md", "html"))
    told = ["Who is protected", "Against whom", "What must be true", "What is not covered", "ε = 1.99", "88.1 %"]
    told += ["At most 4 records of a person", "up to 2 silos", "1 in 100,000", "the server included"]
    for text in (markdown, html):
        assert [part for part in told if part not in text] == []
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF") and "<li>" in html and "\n- " in markdown
    assert b"/Count 1 " in (tmp_path / "page.pdf").read_bytes().replace(b"\n", b" "), "one page"


def test_no_guarantee_is_said_in_capitals(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = "account --algorithm fed_avg --rounds 2 --steps-per-round 1 --sampling-probability 0.1"
    assert run(capsys, *command.split(), "--mode", "as_published", "--statement", str(page))[0] == 0
    text = page.read_text()
    assert "NO GUARANTEE can be stated" in text and "Nothing can be promised" in text
    assert "Against nobody" in text and "has to be trusted" not in text and "must be true" not in text


@pytest.mark.parametrize(("mechanism", "own"), [(LOCAL_ITEM, False), (JOINT, True), (JOINT, False)])
def test_secure_aggregation_is_trusted_only_where_the_bound_needs_it(mechanism: Mechanism, own: bool) -> None:
    made = plan(sound(mechanism), 2.0, silos=3, steps=1, rounds=2, own_noise_only=own)
    sections = statement_sections(made, privacy_statements(made, over_rounds=False), "a run")
    text = " ".join(next(section.paragraphs for section in sections if section.title == "Against whom"))
    summed = mechanism is JOINT and not own
    assert ("the sum over the silos alone" in text) == ("sees the sum over the silos" in text) == summed
    assert ("sees every noisy step of every silo" in text) == ("has to be trusted" in text) != summed


def test_a_persons_bound_is_not_called_the_worse_one_where_it_is_the_better(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    release = "account --algorithm subject_release --rounds 9 --sampling-probability 0.5 --silos 3 --noise-multiplier 4"
    for command, words in ((release.split(), "of a person whose others stay: ε"), (PLAN, "has less protection than")):
        assert run(capsys, *command, "--statement", str(tmp_path / "page.md"))[0] == 0
        assert words in (tmp_path / "page.md").read_text()


def test_bad_files_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    code, _, error = run(capsys, "statement", str(tmp_path / "other.json"))
    assert code == 2 and "to hold a plan" in error
    record = json.loads(run(capsys, *PLAN, "--json")[1])
    for key in ("as_published", "sound", "excluded"):
        privacy = {name: value for name, value in record["privacy"].items() if name != key}
        (tmp_path / "other.json").write_text(json.dumps(sealed(record | {"privacy": privacy})))
        code, _, error = run(capsys, "statement", str(tmp_path / "other.json"))
        assert code == 2 and "is damaged: " in error


@pytest.mark.parametrize(
    ("noise", "said"), [(0.0, "NO GUARANTEE"), (-3.0, "noise_multiplier: Input should be greater")]
)
def test_a_record_that_anybody_may_have_changed_states_what_its_plan_gives(
    noise: float, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    record = json.loads(run(capsys, *PLAN, "--json")[1])
    record["plan"]["silos"] = [{**silo, "noise_multiplier": noise} for silo in record["plan"]["silos"]]
    (tmp_path / "other.json").write_text(json.dumps(record))
    _, page, error = run(capsys, "statement", str(tmp_path / "other.json"))
    assert said in page + error
