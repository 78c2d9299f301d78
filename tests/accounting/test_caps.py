"""Choosing a cap: what a table's row is made of, against plans of the capped counts and the mixture's known noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import plans
from subjectdp.accounting.averaged_noise import cap_table
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.errors import ConfigError
from subjectdp.plan.plan import FederationFacts

COUNTS = np.array([[9, 1, 0, 4] * 50, [2, 3, 5, 0] * 50])
SETTINGS = plans.settings(mode=plans.SOUND, rounds=10, local_steps=3, batch_size=20)


@pytest.mark.slow
def test_rows_keep_items_and_carry_the_plans_noise() -> None:
    one, two, all_items = cap_table(COUNTS, [1, 2, 9], SETTINGS, 2)
    assert (one.kept, two.kept, all_items.kept) == (6 / 24, 11 / 24, 1.0)
    assert one.noise_multiplier < two.noise_multiplier < all_items.noise_multiplier
    for row in (one, two, all_items):
        kept = np.minimum(COUNTS, row.cap)
        items = tuple(kept.sum(axis=1).tolist())
        facts = FederationFacts(items, (150, 150), (row.cap,) * 2, True, row.cap, 2)
        plan = make_plan(plans.sound(plans.CAPPED), facts, SETTINGS)
        assert row.noise_multiplier == max(silo.noise_multiplier for silo in plan.silos)
        assert row.noise == pytest.approx(row.noise_multiplier / 20 / math.sqrt(2))
        assert unit_epsilon(plan, plans.SUBJECT, every_silo=True) == pytest.approx(4.0, rel=2e-3)


def test_a_cap_of_nothing_and_batches_beyond_a_silo_are_refused() -> None:
    with pytest.raises(ConfigError, match="cap on a subject's items"):
        cap_table(COUNTS, [0], SETTINGS, 2)
    with pytest.raises(ConfigError, match="training.batch_size"):
        cap_table(np.minimum(COUNTS, 1)[:, :16], [1], SETTINGS, 2)
