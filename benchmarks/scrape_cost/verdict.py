"""What blocks of windows say: each block gives one ratio, the bootstrap says how sure they are.

A block has as many scraped windows as others, in an order (ABBA) in which a rate that drifts evenly
favours neither. All costs are those of one scrape per second: a block that was scraped more often
shows a larger effect in the same noise, and that is divided by how often.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import msgspec

from benchmarks.scrape_cost.windows import Window

ABBA = (False, True, True, False)
DOSES = (1, 5)
"""Scrapes per second."""
ENOUGH = 6
"""Blocks from which on the interval is one: all of fewer may be on one side by chance."""
RESAMPLES = 10_000
CERTAIN = 0.95
Block = Sequence[Window]


class Interval(msgspec.Struct, frozen=True):
    """A median over ``blocks`` with its bootstrapped 95 % interval."""

    low: float
    median: float
    high: float
    blocks: int

    def text(self, unit: str = "") -> str:
        return f"{self.median:+.2f}{unit} ({self.low:+.2f} to {self.high:+.2f})"


def order_of(block: int) -> tuple[int, ...]:
    """The doses of a block's windows: low and high in turn, every second of a kind the other way
    round."""
    dose, turned = DOSES[block % 2], bool(block // 2 % 2)
    return tuple(dose if scraped != turned else 0 for scraped in ABBA)


def dose_of(block: Block) -> int:
    return max(one.dose for one in block)


def throughput_cost(block: Block) -> float:
    """Per cent of tokens per second that scraping costs."""
    on, off = _sides(block)
    return 100 * (1 - _rate(on) / _rate(off)) / dose_of(block)


def cpu_cost(block: Block) -> float:
    """Per cent of CPU, of all the worker's processes, that a token takes more while scraped."""
    on, off = _sides(block)
    return 100 * (_cpu_per_token(on) / _cpu_per_token(off) - 1) / dose_of(block)


def interval(blocks: Sequence[Block], cost: Callable[[Block], float]) -> Interval:
    costs = [cost(block) for block in blocks]
    chosen = random.Random(7)
    medians = sorted(
        statistics.median(chosen.choices(costs, k=len(costs))) for _ in range(RESAMPLES)
    )
    edge = int(RESAMPLES * (1 - CERTAIN) / 2)
    return Interval(medians[edge], statistics.median(costs), medians[-1 - edge], len(costs))


def judged(cost: Interval, goal_percent: float) -> str:
    if cost.blocks < ENOUGH:
        return "not decided"
    if cost.high < goal_percent:
        return "met"
    return "missed" if cost.low > goal_percent else "not decided"


def _sides(block: Block) -> tuple[list[Window], list[Window]]:
    return [one for one in block if one.dose], [one for one in block if not one.dose]


def _rate(windows: list[Window]) -> float:
    return sum(one.tokens for one in windows) / sum(one.seconds for one in windows)


def _cpu_per_token(windows: list[Window]) -> float:
    cpu_s = sum(sum(one.cpu_s.values()) for one in windows)
    return cpu_s / sum(one.tokens for one in windows)
