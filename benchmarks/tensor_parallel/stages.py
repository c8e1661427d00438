"""Groups of rows, each started as soon as the rows before it have registered.

What a start costs is imports and compilation, which leave the GPUs idle: the next group loads while
the one before it is asked. A row has a limit for its registration alone, cut so that every group
after it keeps some time to start in.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from benchmarks.gpu_rows.served import ERROR_CHARACTERS, TRACE_CHARACTERS, Rows

# What a registered row still needs: first answers compile, and the worker has to stop.
ANSWERS_S = 45.0
# What each later group keeps of the time, whatever the one before it does.
LATER_GROUP_S = 60.0
# A start is not tried in less.
LEAST_S = 30.0


class Stage(msgspec.Struct, frozen=True):
    """``limit_s``: until the row has to be registered; ``over``: it is, or will not be."""

    limit_s: float
    over: Callable[[], None]


def limit_s(left_s: float, groups_after: int, most_s: float) -> float:
    """How long a group that starts now, ``left_s`` before the end of all, may take to register."""
    return min(most_s, left_s - ANSWERS_S - LATER_GROUP_S * groups_after)


class Stages:
    """``run``: one row by name; ``note`` sees all rows that have ended, whenever one has."""

    def __init__(
        self, run: Callable[[str, Stage], dict[str, object]], note: Callable[[Rows], Rows]
    ) -> None:
        self._run = run
        self._note = note
        self._rows: Rows = {}
        self._judged: Rows = {}
        self._lock = threading.Lock()

    def run(self, groups: str, total_s: float, most_s: float) -> Rows:
        """``groups``: "a+b,c". The last answer of ``note``."""
        end_s = time.monotonic() + total_s
        batches = [group.split("+") for group in groups.split(",")]
        with ThreadPoolExecutor(sum(map(len, batches))) as pool:
            for number, names in enumerate(batches):
                left_s = end_s - time.monotonic()
                row_limit_s = limit_s(left_s, len(batches) - number - 1, most_s)
                passed = [threading.Event() for _ in names]
                for name, event in zip(names, passed, strict=True):
                    pool.submit(self._one, name, row_limit_s, event)
                for event in passed:
                    event.wait()
        return self._judged

    def _one(self, name: str, row_limit_s: float, passed: threading.Event) -> None:
        try:
            if row_limit_s < LEAST_S:
                row = failed(f"not started: {row_limit_s:.0f} s were left for its start")
            else:
                row = self._run(name, Stage(row_limit_s, passed.set))
        except Exception as error:
            # A stack that cannot be taken down must not cost the rows after it.
            row = failed(f"{type(error).__name__}: {error}")
            row["trace"] = traceback.format_exc()[-TRACE_CHARACTERS:]
        finally:
            passed.set()
        with self._lock:
            self._rows[name] = row
            self._judged = self._note(dict(self._rows))


def failed(reason: str) -> dict[str, object]:
    return {"flags": "", "failed": reason[:ERROR_CHARACTERS]}
