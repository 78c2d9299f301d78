"""Steps in JAX, written by hand: jit of vmap over grad, for LEAF's CNN and LSTM. Needs the extra ``bench``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subjectdp.benchmarks.cases import Problem
from subjectdp.errors import expected


class JaxStep:
    """One jitted function from parameters to parameters and norms; images are (B, 28, 28, 1)."""

    def __init__(self, problem: Problem) -> None:
        import jax

        self.problem = problem
        inputs = problem.inputs.numpy()
        if problem.case.kind == "image":
            inputs = inputs.transpose(0, 2, 3, 1)
        self.inputs = jax.numpy.asarray(inputs)
        self.labels = jax.numpy.asarray(problem.labels.numpy())
        self.values = {
            name: jax.numpy.asarray(p.detach().numpy()) for name, p in problem.initial.named_parameters()
        }
        self.key = jax.random.key(0)
        self.function = _step_function(problem, _forward(problem.case.model))
        self.last_norms: Any = None

    def step(self) -> None:
        self.key, self.values, self.last_norms = self.function(
            self.key, self.values, self.inputs, self.labels
        )
        self.last_norms.block_until_ready()
        for value in self.values.values():
            value.block_until_ready()

    def parameters(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(np.array(value)) for name, value in self.values.items()}

    def norms(self) -> Tensor:
        return torch.from_numpy(np.array(self.last_norms))


def _step_function(problem: Problem, forward: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def loss(values: Any, item: Any, label: Any) -> Any:
        return -jax.nn.log_softmax(forward(values, item[None]))[0, label]

    def step(key: Any, values: Any, inputs: Any, labels: Any) -> Any:
        gradients = jax.vmap(jax.grad(loss), (None, 0, 0))(values, inputs, labels)
        squares = [jnp.square(g).reshape(len(labels), -1).sum(1) for g in gradients.values()]
        norms = jnp.sqrt(sum(squares))
        scale = jnp.minimum(1.0, problem.clip_norm / norms)
        key, *keys = jax.random.split(key, len(values) + 1)
        rate, std = problem.learning_rate / len(labels), problem.noise_multiplier * problem.clip_norm
        new = {}
        for (name, gradient), noise_key in zip(gradients.items(), keys, strict=True):
            total = jnp.tensordot(scale, gradient, axes=1)
            if std:
                total = total + std * jax.random.normal(noise_key, total.shape)
            new[name] = values[name] - rate * total
        return key, new, norms

    function: Callable[..., Any] = jax.jit(step, donate_argnums=(1,))
    return function


def _forward(model: str) -> Callable[[Any, Any], Any]:
    found = {"leaf_cnn": _leaf_cnn, "leaf_lstm": _leaf_lstm, "small_lstm": _leaf_lstm}.get(model)
    if found is None:
        raise expected("model of the method jax", model, "leaf_cnn, leaf_lstm or small_lstm")
    return found


def _leaf_cnn(values: Any, images: Any) -> Any:
    """``models.image.LeafCNN`` on (B, 28, 28, 1)."""
    import jax

    hidden = images
    for name in ("conv1", "conv2"):
        hidden = jax.lax.conv_general_dilated(
            hidden,
            values[f"{name}.weight"],
            (1, 1),
            ((2, 2), (2, 2)),
            dimension_numbers=("NHWC", "OIHW", "NHWC"),
        )
        hidden = jax.nn.relu(hidden + values[f"{name}.bias"])
        hidden = jax.lax.reduce_window(hidden, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    hidden = hidden.reshape(len(images), -1)
    hidden = jax.nn.relu(hidden @ values["fc1.weight"].T + values["fc1.bias"])
    return hidden @ values["fc2.weight"].T + values["fc2.bias"]


def _leaf_lstm(values: Any, characters: Any) -> Any:
    """``models.text.LeafLSTM`` on (B, 80)."""
    import jax
    import jax.numpy as jnp

    hidden = jnp.swapaxes(values["embedding.weight"][characters], 0, 1)
    for layer in (0, 1):
        weights = values[f"lstm.weight_hh_l{layer}"].T
        projected = hidden @ values[f"lstm.weight_ih_l{layer}"].T
        projected = projected + values[f"lstm.bias_ih_l{layer}"] + values[f"lstm.bias_hh_l{layer}"]

        def cell(carry: Any, row: Any, weights: Any = weights) -> Any:
            state, memory = carry
            i, f, g, o = jnp.split(row + state @ weights, 4, axis=1)
            memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
            state = jax.nn.sigmoid(o) * jnp.tanh(memory)
            return (state, memory), state

        zeros = jnp.zeros((projected.shape[1], weights.shape[0]))
        _, hidden = jax.lax.scan(cell, (zeros, zeros), projected)
    last = jax.nn.relu(hidden[-1] @ values["fc1.weight"].T + values["fc1.bias"])
    return last @ values["fc2.weight"].T + values["fc2.bias"]


def build(name: str, problem: Problem) -> JaxStep:
    """``jax``; ConfigError for a model that is not written out here."""
    return JaxStep(problem)
