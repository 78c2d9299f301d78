"""What nearly all worlds share is made, or tried, once a session: the server's sample, and the one small model."""

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from subjectdp.config.run import RunConfig
from subjectdp.data.catalogue import Source
from subjectdp.data.store import PreparedData
from subjectdp.federation import server
from subjectdp.training import build

MADE: dict[str, PreparedData] = {}  # by the settings of the data
TRIED: dict[str, list[str]] = {}  # by the model


@pytest.fixture(autouse=True)
def once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, check = server._sample, build.check_model

    def sample(run: RunConfig, results: Path) -> PreparedData:
        if run.data.source is not Source.EMBEDDED:  # files, which tests change
            return prepare(run, results)
        if run.data_key not in MADE:
            MADE[run.data_key] = prepare(run, results)
        return MADE[run.data_key]

    def tried(model: nn.Module, *items: Any) -> list[str]:
        if str(model) not in TRIED:
            TRIED[str(model)] = check(model, *items)
        return TRIED[str(model)]

    monkeypatch.setattr(server, "_sample", sample)
    monkeypatch.setattr(build, "check_model", tried)
