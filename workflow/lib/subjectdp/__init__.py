"""Subject-granular differential privacy in federated learning: which ε each person really has.

The public API is what ``__all__`` names; docs/library.md shows it. Names are loaded when they are first used,
so that ``import subjectdp`` itself is light. Everything else is internal and may change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subjectdp.api.accounting import Cap, account, calibrate, caps, epsilon_of_a_person, mechanism
    from subjectdp.api.counts import Counts, SiloSizes, read_counts, read_sizes
    from subjectdp.api.engine import PrivacySettings, SubjectPrivacyEngine, clip_sum
    from subjectdp.api.release import ReleaseSettings, SubjectRelease
    from subjectdp.api.report import Guarantee, PrivacyReport
    from subjectdp.api.schedule import Schedule, untuned_schedule

__version__ = "1.0.0"

__all__ = [
    "Cap",
    "Counts",
    "Guarantee",
    "PrivacyReport",
    "PrivacySettings",
    "ReleaseSettings",
    "Schedule",
    "SiloSizes",
    "SubjectPrivacyEngine",
    "SubjectRelease",
    "account",
    "calibrate",
    "caps",
    "clip_sum",
    "epsilon_of_a_person",
    "mechanism",
    "read_counts",
    "read_sizes",
    "untuned_schedule",
]

_MODULES = {
    "accounting": "Cap account calibrate caps epsilon_of_a_person mechanism",
    "counts": "Counts SiloSizes read_counts read_sizes",
    "engine": "PrivacySettings SubjectPrivacyEngine clip_sum",
    "release": "ReleaseSettings SubjectRelease",
    "report": "Guarantee PrivacyReport",
    "schedule": "Schedule untuned_schedule",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'subjectdp' has no attribute {name!r}")
    try:
        return getattr(import_module(f"subjectdp.api.{_HOMES[name]}"), name)
    except ModuleNotFoundError as problem:
        if problem.name is None or problem.name.startswith("subjectdp"):
            raise
        raise ImportError(f"subjectdp.{name} needs {problem.name}: pip install 'subjectdp[pipeline]'") from problem


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
