"""The networks of the papers and small ones for quick runs."""

from subjectdp.models.fixed import fixed_features
from subjectdp.models.registry import build_model, model_names

__all__ = ["build_model", "fixed_features", "model_names"]
