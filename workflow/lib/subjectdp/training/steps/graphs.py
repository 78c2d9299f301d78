"""CUDA graphs. What is captured runs on the CPU as well; there the tests pretend the rest (tests/training)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UP = 3  # calls before the capture: libraries choose their algorithms and allocate in the first ones


class GraphedCall:
    """A call that launches all of its kernels at once.

    ``run`` reads and writes tensors whose addresses stay the same, never waits for the device and draws no random
    numbers: a replay would draw the same ones again.
    """

    def __init__(self, run: Callable[[], tuple[Tensor, ...]], device: torch.device) -> None:
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                run()
        torch.cuda.current_stream(device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._results = run()

    def __call__(self) -> tuple[Tensor, ...]:
        """The results of one replay, which the next one does not overwrite."""
        self._graph.replay()
        return tuple(result.clone() for result in self._results)


def replayed(run: Callable[[], tuple[Tensor, ...]], device: torch.device) -> Callable[[], tuple[Tensor, ...]]:
    """``run`` as a CUDA graph on a GPU, as it is elsewhere."""
    return GraphedCall(run, device) if device.type == "cuda" else run
