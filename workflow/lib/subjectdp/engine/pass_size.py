"""How many items go through a model at once, from what a pass holds in memory for each."""

from __future__ import annotations

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

_FEWEST = {"cpu": 192, "cuda": 1024}
"""On a CPU more items of LEAF's networks are hardly faster, and would take more memory than plain SGD."""

_SAVED_VALUES = 1 << 23  # that a pass of a lighter model holds


def items_in_a_pass(saved_values: int, device_type: str) -> int:
    """Items in one forward and backward pass of a model that saves so many numbers for each item."""
    return max(_FEWEST.get(device_type, _FEWEST["cuda"]), _SAVED_VALUES // max(1, saved_values))


def saved_values(model: nn.Module, item: Tensor) -> int:
    """Numbers that autograd saves of a batch of one item for the backward pass, parameters left out."""
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    saved = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # views share it
        saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        model(item.clone())  # a slice would count the storage of all items
    return sum(storage.nbytes() // 4 for key, storage in saved.items() if key not in parameters)
