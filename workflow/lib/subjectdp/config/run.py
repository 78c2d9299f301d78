"""The configuration of one run: a constructed ``RunConfig`` is valid and knows its ids."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

from pydantic import ValidationError, field_validator, model_validator

from subjectdp.config import run_ids
from subjectdp.config.messages import config_error
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.rules import check_run
from subjectdp.config.sections import RunSections

_CACHED_IDS = ("run_id", "partition_id", "data_key")


class RunConfig(RunSections):
    """One training run. Ranges are checked by field, combinations by ``rules.check_run``."""

    @field_validator("model", mode="before")
    @classmethod
    def _model_from_text(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_run(self)
        return self

    @cached_property
    def run_id(self) -> str:
        """Id of this run (see :mod:`subjectdp.config.run_ids`)."""
        return run_ids.run_id(self)

    @cached_property
    def partition_id(self) -> str:
        """Id of the partition that this run trains on."""
        return run_ids.partition_id(self)

    @cached_property
    def data_key(self) -> str:
        """Id of the prepared data that this run uses."""
        return run_ids.data_key(self.data)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with the fields in ``update`` replaced, unchecked. Its ids are computed anew."""
        copy = super().model_copy(update=update, deep=deep)
        for name in _CACHED_IDS:
            copy.__dict__.pop(name, None)
        return copy

    def with_seed(self, seed: int) -> Self:
        """A resolved run with another seed, unchecked: nothing else of a run depends on its seed."""
        copy = self.model_copy(update={"seed": seed})
        copy.__dict__.update(data_key=self.data_key, run_id=run_ids.resolved_run_id(copy))
        return copy


def load_run(content: Mapping[str, Any], prefix: str = "") -> RunConfig:
    """A validated and resolved run of a nested mapping such as a ``config.json``.

    Raises:
        ConfigError: a line for each problem; ``prefix`` goes before every key.
    """
    try:
        run = RunConfig.model_validate(content)
    except ValidationError as problem:
        raise config_error(problem, RunConfig, prefix) from None
    return resolve_defaults(run)
