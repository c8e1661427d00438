"""What the scrape benchmark concludes from windows whose cost is known."""

from __future__ import annotations

import random

import pytest

from benchmarks.scrape_cost import verdict
from benchmarks.scrape_cost.windows import Window

COST = 0.03
"""Of throughput, and of CPU per token, per scrape and second."""


def block(number: int, noise: random.Random) -> list[Window]:
    drift = [1000 + 50 * place for place in range(4)]
    return [
        Window(
            dose=dose,
            seconds=5.0,
            tokens=round(5 * rate * (1 - COST * dose) * noise.gauss(1, 0.02)),
            cpu_s={"worker": 2.0, "scheduler": 3.0},
            scrapes_ms=[10.0] * 5 * dose,
        )
        for dose, rate in zip(verdict.order_of(number), drift, strict=True)
    ]


@pytest.mark.parametrize("number", range(4))
def test_a_blocks_order_favours_neither_side_and_doses_take_turns(number: int) -> None:
    order = verdict.order_of(number)
    scraped = [place for place, dose in enumerate(order) if dose]
    assert sum(scraped) == sum(range(4)) / 2 and len(scraped) == 2
    assert set(order) == {0, verdict.DOSES[number % 2]}


@pytest.mark.parametrize("dose", verdict.DOSES)
def test_a_cost_is_found_in_noise_and_drift_and_more_surely_at_the_higher_dose(dose: int) -> None:
    noise = random.Random(3)
    blocks = [
        one
        for one in (block(number, noise) for number in range(28))
        if dose == max(window.dose for window in one)
    ]
    found = verdict.interval(blocks, verdict.throughput_cost)
    assert found.low < 100 * COST < found.high
    assert found.high - found.low < 4 / dose
    cpu = verdict.interval(blocks, verdict.cpu_cost)
    assert cpu.low < 100 * COST * 1.1 and cpu.high > 100 * COST


@pytest.mark.parametrize(
    ("low", "high", "blocks", "judged"),
    [
        (0.1, 1.9, verdict.ENOUGH, "met"),
        (2.1, 3.0, verdict.ENOUGH, "missed"),
        (-5.0, 4.0, 100, "not decided"),
        (0.1, 1.9, verdict.ENOUGH - 1, "not decided"),
    ],
)
def test_only_a_whole_interval_of_enough_blocks_decides(
    low: float, high: float, blocks: int, judged: str
) -> None:
    found = verdict.Interval(low, (low + high) / 2, high, blocks)
    assert verdict.judged(found, 2.0) == judged
