"""One release a round for each person over all silos, of modules of anyone's."""

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp
from api.loops import Remembers
from engine.oracle import Code
from subjectdp.errors import ConfigError, DataError, ModelError, PrivacyError

ITEMS, PEOPLE, SILOS, C = 40, 8, 3, 0.5
Parts = dict[tuple[int, int], Tensor]  # by person and silo
GENERATOR = torch.Generator().manual_seed(1)
INPUTS = torch.randn(ITEMS, 5, 6, generator=GENERATOR)
TARGETS = torch.arange(ITEMS) % 3
PERSON = np.arange(ITEMS) % PEOPLE
SILO = np.random.default_rng(0).integers(0, SILOS, ITEMS)


def attend(m: Any, rows: Tensor) -> Tensor:
    mixed = m.attention(rows, rows, rows)[0] + m.shift
    result: Tensor = m.head(mixed.mean(1)) + m.head(rows[:, 0])
    return result


def attention() -> nn.Module:
    """No layer rule covers it: a head that is used twice beside attention."""
    parts = {"attention": nn.MultiheadAttention(6, 2, batch_first=True), "head": nn.Linear(6, 3)}
    return Code(attend, **parts, shift=nn.Parameter(torch.zeros(6)))


def made(seed: int | None = 3, module: nn.Module | None = None, **options: Any) -> Any:
    """A training whose noise is next to nothing."""
    torch.manual_seed(0)
    module = attention() if module is None else module
    chosen = {"rounds": 5, "noise_multiplier": 1e-5, "clip_norm": C, "learning_rate": 1.0, "seed": seed} | options
    settings, data = subjectdp.ReleaseSettings(**chosen), DataLoader(TensorDataset(INPUTS, TARGETS), 16)
    return subjectdp.SubjectRelease(module, nn.CrossEntropyLoss(), data, PERSON, SILO, settings)


class MixesMany(nn.Linear):
    """Items apart in mini-batches of up to five."""

    def forward(self, rows: Tensor) -> Tensor:
        values = super().forward(rows[:, 0])
        return values - values.mean(0) if len(values) > 5 else values


def test_what_mixes_items_in_large_mini_batches_alone_is_seen() -> None:
    with pytest.raises(ModelError, match="with other items in the batch, what an item gets changes"):
        made(module=MixesMany(6, 3)).round()


def vector(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def contributions(module: nn.Module, clip: str, local_steps: int = 1, learning_rate: float = 1.0) -> Parts:
    """Of each person at each silo before clipping, by plain loops: minus mean gradients (a rate of 1), or updates."""
    found = {}
    for person, silo in sorted(set(zip(PERSON.tolist(), SILO.tolist(), strict=True))):
        own = copy.deepcopy(module)
        where = torch.from_numpy(np.flatnonzero((person == PERSON) & (silo == SILO)))
        for _ in range(local_steps):
            loss = nn.functional.cross_entropy(own(INPUTS[where]), TARGETS[where])
            gradients = torch.autograd.grad(loss, list(own.parameters()))
            with torch.no_grad():
                for parameter, gradient in zip(own.parameters(), gradients, strict=True):
                    parameter.sub_(learning_rate * gradient)
        found[person, silo] = vector(own) - vector(module)
    return found


def clipped(all_of_them: Parts, squares: bool) -> Tensor:
    total = torch.zeros_like(next(iter(all_of_them.values())))
    for (person, _), each in all_of_them.items():
        held = sum(other == person for other, _ in all_of_them)
        bound = C / (held**0.5 if squares else held)
        total += each * min(1.0, bound / float(each.norm()))
    return total


GRADIENT: dict[str, Any] = {"clip": "gradient"}
UPDATES: list[dict[str, Any]] = [{"clip": "update", "local_steps": n, "learning_rate": 0.3} for n in (1, 3)]
KINDS = [*((trust, GRADIENT) for trust in ("local", "secure_aggregation", "central"))]
KINDS += [(trust, kind) for trust in ("local", "secure_aggregation") for kind in UPDATES]


@pytest.mark.slow
@pytest.mark.parametrize(("trust", "kind"), KINDS)
def test_a_round_is_that_of_a_loop_over_people(trust: str, kind: dict[str, Any]) -> None:
    release = made(trust=trust, **kind)
    start, own = vector(release.module), contributions(copy.deepcopy(release.module), **kind)
    divisor = sum(silo.divisor for silo in release.plan.silos)
    assert divisor == pytest.approx(PEOPLE * (SILOS**0.5 if trust == "local" else 1.0))
    release.round()
    expected = start + clipped(own, squares=trust == "local") / divisor
    assert torch.allclose(vector(release.module), expected, atol=1e-4)
    assert all(parameter.requires_grad for parameter in release.module.parameters())


def test_the_noise_is_the_plans() -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 3000)
    data = DataLoader(TensorDataset(torch.zeros(ITEMS, 6), torch.zeros(ITEMS, dtype=torch.int64)), 16)
    for trust, silos_noise in (("local", SILOS**0.5), ("secure_aggregation", 1.0), ("central", 1.0)):
        settings = subjectdp.ReleaseSettings(1, noise_multiplier=2.0, clip_norm=C, learning_rate=1.0, trust=trust)
        own = copy.deepcopy(module)
        release = subjectdp.SubjectRelease(own, nn.CrossEntropyLoss(), data, PERSON, SILO, settings)
        divisor = sum(silo.divisor for silo in release.plan.silos)
        release.round()
        moved = (own.weight - module.weight).detach().flatten().double()  # inputs are 0: no gradient
        assert float(moved.std()) == pytest.approx(2.0 * C * silos_noise / divisor, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize(("clip", "name"), [("gradient", "subject_release"), ("update", "uldp_fl")])
@pytest.mark.parametrize("trust", ["local", "secure_aggregation"])
def test_epsilon_is_that_of_the_counts(clip: str, name: str, trust: str) -> None:
    release = made(clip=clip, trust=trust, noise_multiplier=3.0, sampling_probability=0.5)
    pairs, sizes = np.unique(np.stack([PERSON, SILO], 1), axis=0, return_counts=True)
    rows = [(int(a), int(b), int(n)) for (a, b), n in zip(pairs, sizes, strict=True)]
    for rounds in (1, 2):
        release.round()
        schedule = subjectdp.Schedule(rounds, 1, sampling_probability=0.5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = subjectdp.account(subjectdp.mechanism(name, trust), rows, schedule, 3.0)
        assert release.get_epsilon() == pytest.approx(wanted.subject.epsilon, rel=1e-6)
        assert release.report().subject.epsilon == pytest.approx(wanted.subject.epsilon, rel=1e-6)
    assert made().get_epsilon() == 0.0


def test_an_epsilon_is_reached_and_no_round_follows() -> None:
    release = made(seed=None, noise_multiplier=None, epsilon=4.0, rounds=2, averaged_rounds=0.5)
    release.round()
    release.round()
    assert 3.98 < release.get_epsilon() <= 4.0
    with pytest.raises(PrivacyError, match="at most 2 rounds"):
        release.round()
    assert "subjects seen                    8" in str(release.report())


def test_the_rule_without_tuning() -> None:
    settings = subjectdp.ReleaseSettings.untuned(subjects=180, weights=7936, epsilon=4, silos=16)
    rule = subjectdp.untuned_schedule(subjects=180, weights=7936, epsilon=4, silos=16)
    for name in ("rounds", "clip_norm", "learning_rate"):
        assert getattr(settings, name) == getattr(rule, name)
    assert settings.averaged_rounds == 0.5 and settings.epsilon == 4


def test_a_module_that_keeps_items_shows_nothing() -> None:
    with pytest.raises(ModelError, match="'seen' keeps values"):
        made(module=Remembers(buffer=True))
    late = Remembers(10, buffer=True)  # more than the trials run
    release = made(module=late, clip="update")
    start = vector(late)
    with pytest.raises(ModelError, match="'seen' keeps values"):
        release.round()
    assert torch.equal(vector(late), start) and not late.seen.any()
    assert release.steps == 1, "counted, though nothing is shown"


@pytest.mark.parametrize("clip", ["gradient", "update"])
def test_a_module_that_remembers_people_is_refused(clip: str) -> None:
    """Hidden from buffers; one that starts later is found when the module is tried again, before a further round."""
    with pytest.raises(ModelError):
        made(module=Remembers(), clip=clip)
    late = Remembers(after=30)
    release = made(module=late, clip=clip)
    release.round()
    late.passes = 100
    with pytest.raises(ModelError):
        release.round()
    assert release.steps == 1


def test_batch_norm_is_replaced_where_that_is_asked_for() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    with pytest.raises(ModelError, match="'2' is BatchNorm1d"):
        made(module=module)
    with pytest.warns(UserWarning, match="in place of BatchNorm now: 2"):
        made(module=module, fix=True).round()
    assert isinstance(module[2], nn.GroupNorm)


def test_what_is_slow_or_not_trained_is_said() -> None:
    with pytest.warns(UserWarning, match="No layer rule covers .*attention"):
        made()
    with pytest.warns(UserWarning, match="does not depend on .*unused"):
        module = attention()
        module.unused = nn.Parameter(torch.zeros(3))
        made(module=module)


WRONG = {"clip": "item", "trust": "nobody", "local_steps": 3, "rounds": 0, "silos_per_subject": 1, "delta": 0.5}
WRONG |= {"averaged_rounds": 0.0, "optimizer": "lion", "momentum": 1.0}
WRONG |= {"learning_rate": 0.0, "sampling_probability": 1.5}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({name: value}, name) for name, value in WRONG.items()),
        ({"clip": "update", "trust": "central"}, "trust"),
        *(({"seed": seed}, "seed to be a whole number") for seed in (-1, 1.5, "a")),
        ({"optimizer": "sgd", "momentum": 0.5}, "momentum to be .* left out with optimizer='sgd'"),
        *((noises, "one of noise_multiplier and epsilon") for noises in ({"noise_multiplier": None}, {"epsilon": 1.0})),
    ],
)
def test_what_does_not_fit_is_refused_by_name(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(**options)


def test_names_are_those_of_the_engine() -> None:
    data = DataLoader(TensorDataset(INPUTS[:4, 0], TARGETS[:4]))
    settings = subjectdp.ReleaseSettings(1, noise_multiplier=1.0)

    def release(people: Any, silos: Any) -> Any:
        return subjectdp.SubjectRelease(nn.Linear(6, 3), nn.CrossEntropyLoss(), data, people, silos, settings)

    assert release([1, 1.0, "1", "b"], ["x", "x", "y", "y"])._federation.partition.subjects == 2
    with pytest.raises(DataError, match="silos, item 1: expected a silo's name, got .*missing"):
        release(list("pqrs"), ["x", None, "y", "y"])
    with pytest.raises(ConfigError, match="one for each of the 4 items"):
        release(list("abc"), list("xxyy"))


@pytest.mark.slow
def test_a_saved_state_goes_on_with_new_noise() -> None:
    first, second = made(noise_multiplier=3.0), made(noise_multiplier=3.0)
    first.round()
    state = first.state_dict()
    first.round()
    one = vector(first.module)
    first.load_state_dict(state)
    assert first.steps == 2, "what was released stays counted"
    assert first._federation.seed.bit_length() > 200, "as secret as the 256 bits before"
    first.round()
    assert not torch.allclose(vector(first.module), one, atol=1e-3), "the noise of no round comes twice"
    second.load_state_dict(state)
    assert second.steps == 1
    with pytest.raises(PrivacyError, match="same people"):
        made(noise_multiplier=2.0).load_state_dict(state)
    for broken in (None, {}, state | {"model": {"model": torch.zeros(3)}}, state | {"model": torch.ones(3)}):
        with pytest.raises(PrivacyError, match="same people"):
            second.load_state_dict(broken)
    with pytest.raises(PrivacyError, match="cannot be pickled"):
        pickle.dumps(first)


def test_a_module_is_in_one_training_and_stays_as_the_last_round_left_it() -> None:
    release = made()
    with pytest.raises(ModelError, match="no engine has made private yet"):
        made(module=release.module)
    release.round()
    with torch.no_grad():
        next(release.module.parameters()).add_(1.0)
    with pytest.raises(PrivacyError, match="as the last round left it"):
        release.round()
