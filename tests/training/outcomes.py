"""What a run ends with, apart from times: to be the same however often the run was stopped on its way."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

TIMES = ("wall_seconds", "peak_memory_mb", "resumed_after_rounds")


def outcome(folder: Path) -> dict[str, Any]:
    """Model, mini-batches, evaluated rounds and manifest; equal for two runs exactly if they ended the same."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("seal")  # it covers times
    manifest = {key: value for key, value in manifest.items() if key not in TIMES}
    manifest["final"].pop("train_seconds")
    manifest["files"].pop("rounds.parquet")  # it holds times
    manifest["config"].pop("performance")
    manifest["environment"].pop("git_commit")
    rounds = pd.read_parquet(folder / "rounds.parquet").drop(columns="train_seconds")
    return {
        "model": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "steps": pd.read_parquet(folder / "steps.parquet").to_csv(),
        "rounds": rounds.to_csv(float_format="%.17g"),
        "manifest": json.dumps(manifest, sort_keys=True),
    }


def resumed_after(folder: Path) -> list[int]:
    """The rounds after which a finished run had been taken up again."""
    found: list[int] = json.loads((folder / "manifest.json").read_text())["resumed_after_rounds"]
    return found
