"""A CUDA device that is not there: tensors say they are on ``cuda:0`` and are computed on the CPU.

What a GPU would refuse is refused: operations on tensors of two devices, NumPy's view of a tensor on the device. Time,
memory, streams and the kernels themselves are not modelled. Where there is a GPU, it is used instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from subjectdp.noise import gaussian as noise
from subjectdp.noise.gaussian import keyed_generator

GPU = torch.device("cuda", 0)
_MAKERS = {torch.arange, torch.as_tensor, torch.empty, torch.full, torch.ones, torch.tensor, torch.zeros}


class OnGPU(Tensor):
    """A tensor whose values are on the CPU and that says it is on the GPU."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> OnGPU:
        made: OnGPU = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inside.size(),
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            device=inside.device,
        )
        made.inside = inside
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGPU({self.inside!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        name = func.overloadpacket.__name__
        _check(name, tree_leaves((args, options)))
        options.pop("device", None)
        inside, inside_options = tree_map(_inside, args), tree_map(_inside, options)
        found = func(*inside, **inside_options)
        if name == "copy_" and not isinstance(args[0], OnGPU):
            return args[0]
        wrapped = tree_map(lambda value: OnGPU(value) if isinstance(value, Tensor) else value, found)
        return return_and_correct_aliasing(func, args, dict(kwargs or {}), wrapped)


def _inside(value: Any) -> Any:
    return value.inside if isinstance(value, OnGPU) else value


def _check(name: str, values: list[Any]) -> None:
    host = [v for v in values if isinstance(v, Tensor) and not isinstance(v, OnGPU)]
    allowed = name == "copy_" or (name in ("index", "index_put_") and isinstance(values[0], OnGPU))
    if not allowed and any(v.dim() > 0 for v in host):
        raise RuntimeError(f"Expected all tensors to be on the same device: {name} with one on the CPU")


class _Factories(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if func == Tensor.device.__get__ and isinstance(args[0], OnGPU):  # type: ignore[attr-defined]
            return GPU
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            return _set_data(*args)
        if func is Tensor.numpy and isinstance(args[0], OnGPU):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if func is Tensor.tolist and isinstance(args[0], OnGPU):
            return _fetched(args[0]).tolist()
        if func in (Tensor.cpu, Tensor.to) and isinstance(args[0], OnGPU) and _to_host(func, args, options):
            return _fetched(args[0])
        if func is Tensor.pin_memory:
            return args[0].clone()
        if func is Tensor.to and any(_is_gpu(value) for value in (*args[1:], options.get("device"))):
            return _moved(args, options)
        if func not in _MAKERS or not _is_gpu(options.get("device")):
            return func(*args, **options)
        options["device"] = torch.device("cpu")
        return OnGPU(func(*args, **options))


def _is_gpu(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, OnGPU) or (isinstance(value, torch.device) and value.type == "cuda")


def _to_host(func: Any, args: Any, options: dict[str, Any]) -> bool:
    values = (*args[1:2], options.get("device"))
    return func is Tensor.cpu or any(v == "cpu" or (isinstance(v, torch.device) and v.type == "cpu") for v in values)


def _fetched(tensor: OnGPU) -> Tensor:
    return tensor.inside.detach().clone()


def _moved(args: Any, options: dict[str, Any]) -> Tensor:
    tensor = args[0]
    if not isinstance(tensor, OnGPU):
        tensor = OnGPU(tensor.detach().clone())
    others = (other.dtype if isinstance(other, Tensor) else other for other in (*args[1:], *options.values()))
    kinds = [other for other in others if isinstance(other, torch.dtype)]
    return tensor.to(kinds[0]) if kinds else tensor


def _same_class(tensor: Tensor, other: Tensor) -> bool:
    return isinstance(tensor, OnGPU) == isinstance(other, OnGPU)


def _set_data(tensor: Tensor, value: Tensor) -> None:
    if isinstance(tensor, OnGPU) and isinstance(value, OnGPU):
        tensor.inside = value.inside
    with torch._C.DisableTorchFunction():
        tensor.data = value


_normal = Tensor.normal_


def _normal_of_the_cpu(tensor: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    return tensor.copy_(_normal(torch.empty(tensor.shape, dtype=tensor.dtype), mean, std, generator=generator))


@contextmanager
def _real_gpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        patch.setattr(noise, "keyed_generator", lambda key, device: keyed_generator(key))
        patch.setattr(Tensor, "normal_", _normal_of_the_cpu)
        yield


@contextmanager
def pretend_gpu() -> Iterator[None]:
    """Within it torch has one CUDA device, whose noise is the CPU's."""
    if torch.cuda.is_available():
        with _real_gpu():
            yield
        return
    with pytest.MonkeyPatch.context() as patch, _Factories():
        patch.setattr(noise, "keyed_generator", lambda key, device: keyed_generator(key))
        # a parameter that moves becomes another one, as its class changes
        patch.setattr(torch, "_has_compatible_shallow_copy_type", _same_class)
        for name, value in {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "get_device_name": lambda device: "pretended GPU",
            "synchronize": lambda device: None,
            "max_memory_allocated": lambda device: 0,
        }.items():
            patch.setattr(torch.cuda, name, value)
        yield
