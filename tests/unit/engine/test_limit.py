"""The byte budget: what is spent is waited for, and no more than a little is saved up."""

from __future__ import annotations

import pytest

from isthmus.engine import limit
from isthmus.engine.limit import ByteBudget


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limit.time, "monotonic", lambda: now[0])
    return now


def test_debt_is_what_was_spent_over_the_rate(clock):
    budget = ByteBudget(1000)
    budget.spend(3000)
    assert budget.debt_seconds() == pytest.approx(3.0)
    clock[0] += 2
    assert budget.debt_seconds() == pytest.approx(1.0)
    clock[0] += 2
    assert budget.debt_seconds() == 0


def test_idle_time_saves_up_only_a_little(clock):
    budget = ByteBudget(1000)
    clock[0] += 3600
    budget.spend(1500)
    assert budget.debt_seconds() == pytest.approx(1.0)


def test_no_limit_is_no_debt(clock):
    budget = ByteBudget(None)
    budget.spend(10**12)
    assert budget.debt_seconds() == 0


def test_a_new_limit_counts_from_now(clock):
    budget = ByteBudget(None)
    budget.spend(10**12)
    budget.change(1000)
    assert budget.debt_seconds() == 0
    budget.spend(1000)
    assert budget.debt_seconds() == pytest.approx(1.0)
    budget.change(None)
    assert budget.debt_seconds() == 0
