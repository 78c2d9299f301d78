"""What must be seen when the report of a scenario is opened in a browser: used where a scenario has been run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from report.browser import Visit, screenshot, visit

_SCRIPT = """
  while (app === undefined) await wait(20);
  await wait(500);
  const seen = {opening: document.querySelector("#app").innerText, results: {}, lists: {}};
  for (const category of Object.keys(categories)) {
    app.setView({navbarMode: "menu"});
    await wait(50);
    app.showCategory(category);
    await wait(100);
    seen.lists[category] = document.querySelector("#app").innerText.slice(0, 400);
  }
  for (const [path, result] of Object.entries(results)) {
    app.showResultInfo(path);
    await wait(100);
    const kind = result.mime_type.startsWith("image/") ? "img" : "html";
    app.setView({content: kind, contentPath: result.data_uri, resultPath: path});
    await wait(400);
    const content = [...document.querySelectorAll("#app img, #app iframe")];
    const shown = content.find(element => element.src === result.data_uri);
    seen.results[path] = {
      kind,
      width: shown === undefined ? 0 : shown.naturalWidth || shown.clientWidth,
      text: document.querySelector("#app").innerText,
      rule: result.job_properties.rule,
      labels: result.labels,
    };
  }
  return seen;
"""


def look_at(browser: str, report: Path) -> Visit:
    """Opens the report, goes through its categories and shows every result."""
    return visit(browser, report, _SCRIPT)


def check_report(seen: Visit, options: str) -> dict[str, Any]:
    """No error, no request, every result shown, each with the command that makes it; returns what was seen.

    ``options``: the options of the scenario that the commands have to name.
    """
    assert (seen.problems, seen.requests) == ([], [])
    for path, result in seen.found["results"].items():
        assert result["width"] > 100, f"{path} is not shown"
        command = f"snakemake --cores all {result['rule']} {options}"
        assert command in " ".join(result["text"].split()), f"{path} does not say {command}"
    found: dict[str, Any] = seen.found
    return found


def check_screenshot(browser: str, report: Path, target: Path) -> None:
    """The window shows text and the menu: white, dark and grey, and the first lines are not cut off."""
    screenshot(browser, report, target)
    with Image.open(target) as picture:
        colours = picture.convert("RGB").getcolors(1 << 24)
    assert colours is not None
    shares = {colour: count / sum(n for n, _ in colours) for count, colour in colours}
    assert 0.3 < shares.get((255, 255, 255), 0.0) < 0.95
    assert len(shares) > 50
