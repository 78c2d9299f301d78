"""The catalogue's operations of each model against torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from subjectdp.data.catalogue import DATASETS
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS, SHAPES
from subjectdp.models.fixed import fixed_features

DATASET = {"image": "femnist", "text": "shakespeare", "vector": "acs_income"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_operations_are_those_of_torchs_own_counter_on_tensors_without_data(name: str) -> None:
    facts = DATASETS[DATASET[MODELS[name].kind]]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, {}, shape)
    item = torch.zeros((1, *shape), dtype=torch.int64 if facts.kind == "text" else torch.float32)
    features = fixed_features(model)
    with torch.no_grad():
        item = item if features is None else features(item)
        with FlopCounterMode(display=False) as counter:
            model.to("meta")(item.to("meta"))
    assert counter.get_total_flops() == MODELS[name].forward_flops
