"""What nearly all worlds share is made, or tried, once a session: the server's sample, and the one small model."""

from pathlib import Path

import pytest

from subjectdp.config.run import RunConfig
from subjectdp.data.catalogue import Source
from subjectdp.data.store import PreparedData
from subjectdp.federation import server
from training import small_world

MADE: dict[str, PreparedData] = {}  # by the settings of the data


@pytest.fixture(autouse=True)
def once_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = server._sample

    def sample(run: RunConfig, results: Path) -> PreparedData:
        if run.data.source is not Source.EMBEDDED:  # files, which tests change
            return prepare(run, results)
        if run.data_key not in MADE:
            MADE[run.data_key] = prepare(run, results)
        return MADE[run.data_key]

    monkeypatch.setattr(server, "_sample", sample)
    small_world.try_models_once(monkeypatch)
