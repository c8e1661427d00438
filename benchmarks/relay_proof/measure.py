"""One measurement: S streams at once through a real client, and what they cost the worker."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.relay_proof.stub import STAMP_MODULUS, stamp


class Load(msgspec.Struct, frozen=True):
    """``period_ms`` 0: as fast as the reader takes them."""

    streams: int
    chunks_each: int
    period_ms: float = 0.0
    prompt_tokens: int = 8


class Sample(msgspec.Struct, frozen=True):
    """CPU: user and system of the whole worker process, the runtime's threads included.

    Latency: from the making of a chunk until the client has it, without each stream's first.
    """

    cpu_us_per_chunk: float
    gap_us: float
    latency_p50_us: float | None = None
    latency_p99_us: float | None = None


class Spread(msgspec.Struct, frozen=True):
    median: float
    lowest: float
    highest: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, to the nanosecond: Linux makes a clock of every process
    (clock_getcpuclockid(3)), while /proc counts in hundredths of a second."""
    return time.clock_gettime((~pid << 3) | 2)


async def one_stream(
    client: Any, chunks: int, late_us: list[int] | None = None, prompt_tokens: int = 8
) -> int:
    request = {
        "model": "m",
        "token_ids": list(range(1, 1 + prompt_tokens)),
        "stop_conditions": {"max_tokens": chunks, "ignore_eos": True},
        "sampling_options": {"temperature": 0.0},
        "output_options": {},
    }
    received = 0
    async for item in await client.random(request):
        received += 1
        if late_us is not None and received > 1:
            made = item.data()["token_ids"][-1]
            late_us.append((stamp() - made) % STAMP_MODULUS)
    return received


async def measure(client: Any, pid: int, load: Load) -> Sample:
    late_us: list[int] | None = [] if load.period_ms else None
    before_s, began_s = cpu_seconds(pid), time.monotonic()
    counts = await asyncio.gather(
        *(
            one_stream(client, load.chunks_each, late_us, load.prompt_tokens)
            for _ in range(load.streams)
        )
    )
    wall_s, cpu_s = time.monotonic() - began_s, cpu_seconds(pid) - before_s
    if set(counts) != {load.chunks_each}:
        raise RuntimeError(f"chunks arrived per stream: {sorted(set(counts))}")
    sample = Sample(cpu_s / sum(counts) * 1e6, wall_s / load.chunks_each * 1e6)
    if late_us is None:
        return sample
    percentiles = statistics.quantiles(late_us, n=100)
    return msgspec.structs.replace(
        sample, latency_p50_us=percentiles[49], latency_p99_us=percentiles[98]
    )
