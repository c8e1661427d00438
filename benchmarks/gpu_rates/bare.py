"""A bare `sgl.Engine` in a process of its own, asked over its standard input.

One JSON object per line in, one per line out:
``{"prompts": [[ids]], "new_tokens": n, "stream": bool}`` -> ``{"seconds": s, "tokens": n,
"first_ms": ms or null}``. The first line out says that the engine is up.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPLY = "##"


class BareEngine:
    """The parent's side."""

    def __init__(self, options: Mapping[str, Any], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_rates.bare", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_up(self) -> None:
        self._reply()

    def round(self, prompts: list[list[int]], new_tokens: int, *, stream: bool) -> dict[str, Any]:
        question = {"prompts": prompts, "new_tokens": new_tokens, "stream": stream}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(REPLY):
                answer: dict[str, Any] = json.loads(line[len(REPLY) :])
                return answer
        raise RuntimeError("the bare engine ended")

    def close(self) -> None:
        import signal

        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()


def main() -> None:
    import sglang

    engine = sglang.Engine(**json.loads(sys.argv[1]))
    say({"up": True})
    for line in sys.stdin:
        question = json.loads(line)
        say(engine.loop.run_until_complete(answer(engine, question)))


def say(value: Mapping[str, Any]) -> None:
    print(REPLY + json.dumps(value), flush=True)


async def answer(engine: Any, question: Mapping[str, Any]) -> dict[str, Any]:
    options = {
        "max_new_tokens": question["new_tokens"],
        "temperature": 0.0,
        "ignore_eos": True,
    }
    began_s = time.monotonic()
    if not question["stream"]:
        answers = await engine.async_generate(
            input_ids=question["prompts"], sampling_params=options
        )
        tokens = sum(one["meta_info"]["completion_tokens"] for one in answers)
        return {"seconds": time.monotonic() - began_s, "tokens": tokens, "first_ms": None}
    parts = await asyncio.gather(*(one_stream(engine, ids, options) for ids in question["prompts"]))
    return {
        "seconds": time.monotonic() - began_s,
        "tokens": sum(tokens for tokens, _ in parts),
        "first_ms": 1000 * statistics.median(first - began_s for _, first in parts),
    }


async def one_stream(engine: Any, ids: list[int], options: dict[str, Any]) -> tuple[int, float]:
    first_s, tokens = 0.0, 0
    stream = await engine.async_generate(input_ids=ids, sampling_params=options, stream=True)
    async for output in stream:
        first_s = first_s or time.monotonic()
        tokens = output["meta_info"]["completion_tokens"]
    return tokens, first_s


if __name__ == "__main__":
    main()
