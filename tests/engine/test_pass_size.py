"""Items in a pass follow the model's memory."""

from __future__ import annotations

import torch
from torch import nn

from subjectdp.engine.probe import items_in_a_pass, saved_values
from subjectdp.models.build import build_model


def test_leafs_networks_keep_the_fewest_and_a_linear_head_takes_a_mini_batch_at_once() -> None:
    image = torch.zeros(1, 1, 28, 28)
    cnn = items_in_a_pass(saved_values(build_model("leaf_cnn", 62, "image", 0, {}), image), "cpu")
    head = items_in_a_pass(saved_values(nn.Linear(3969, 62), torch.zeros(1, 3969)), "cpu")
    assert cnn == 192
    assert head >= 1024


def test_an_item_of_a_mini_batch_counts_alone() -> None:
    mini_batch = torch.zeros(512, 3969)
    assert saved_values(nn.Linear(3969, 62), mini_batch[:1]) == 3969


def test_memory_of_a_pass_is_bounded_and_a_gpu_takes_at_least_as_many() -> None:
    for saved in (1, 1000, 10_000, 100_000):
        items = items_in_a_pass(saved, "cpu")
        assert items == 192 or items * saved <= 1 << 23
        assert items_in_a_pass(saved, "cuda") >= max(items, 1024)
