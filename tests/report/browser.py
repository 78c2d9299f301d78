"""A real browser, without a window and without a network: opens a page, drives it, and says what happened.

Chromium alone is needed: a script is put at the end of a copy of the page, leaves what it saw in the document, and the
browser prints the document (`--dump-dom`), its console and every address it asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
    *("--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"),
)
_CONSOLE = re.compile(r'^\[[^\]]*:(\w+):CONSOLE[:(]\d+\)?\] "(.*?)", source: ', re.MULTILINE | re.DOTALL)
# What Snakemake's own page says of the library it is made with.
_HARMLESS = ("cdn.tailwindcss.com should not be used in production",)
_LEFT = re.compile(r'<pre id="seen"[^>]*>(.*?)</pre>', re.DOTALL)
_VISIT = """
<pre id="seen" hidden></pre>
<script>
const wait = milliseconds => new Promise(done => setTimeout(done, milliseconds));
const problems = [];
window.addEventListener("error", event => problems.push(String(event.message)));
window.addEventListener("unhandledrejection", event => problems.push(String(event.reason)));
(async () => {
  let found = null;
  while (document.readyState !== "complete") await wait(20);
  try { found = await (async () => { %s })(); } catch (problem) { problems.push(String(problem)); }
  const loaded = performance.getEntriesByType("resource").map(entry => entry.name.slice(0, 200));
  const text = JSON.stringify({found, problems, loaded: loaded.filter(name => !name.startsWith("data:"))});
  document.getElementById("seen").textContent = text;
})();
</script>
"""


@dataclass(frozen=True)
class Visit:
    """What a page did."""

    found: Any  # what the script returned
    problems: list[str]  # errors of scripts, and of the console
    requests: list[str]  # addresses asked for, beside the page itself and what it carries


def find_browser() -> str | None:
    """The browser: the one that SUBJECTDP_BROWSER names, else Chromium or Chrome; None where there is none."""
    named = os.environ.get("SUBJECTDP_BROWSER")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


def visit(browser: str, page: Path, script: str) -> Visit:
    """Opens ``page``, runs the body of an async function in it, and returns what it saw."""
    before, _, after = page.read_text().rpartition("</body>")  # the scripts in it may name it too
    beside = {"dir": page.parent, "suffix": ".html"}  # the copy, so that it shows the same pictures
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", **beside) as copy:
        copy.write(f"{before}{_VISIT % script}</body>{after}")
        copy.flush()
        log = Path(folder) / "net.json"
        done = _run(browser, Path(folder), f"--log-net-log={log}", "--dump-dom", Path(copy.name).as_uri())
        left = _LEFT.search(done.stdout)
        if left is None or not left[1]:
            raise AssertionError(f"{page.name}: the script did not end:\n{done.stderr[-3000:]}")
        seen = json.loads(unescape(left[1]))
        asked = _asked_by_pages(log)
    console = [text for level, text in _CONSOLE.findall(done.stderr) if level in ("ERROR", "WARNING", "INFO")]
    said = [text for text in console if not text.startswith(_HARMLESS)]
    return Visit(seen["found"], seen["problems"] + said, sorted({*seen["loaded"], *asked}))


def _asked_by_pages(log: Path) -> set[str]:
    events = json.loads(log.read_text())["events"]
    asked = [event["params"] for event in events if "initiator" in event.get("params", {})]
    return {each["url"] for each in asked if each["initiator"] != "not an origin"}


def screenshot(browser: str, page: Path, target: Path, width: int = 1500, height: int = 1000) -> None:
    """A picture of what the window shows once the page is there."""
    with tempfile.TemporaryDirectory() as folder:
        _run(
            browser, Path(folder), f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri()
        )


def _run(browser: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [browser, *_FLAGS, f"--user-data-dir={profile / 'profile'}", "--virtual-time-budget=60000"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, check=True)
