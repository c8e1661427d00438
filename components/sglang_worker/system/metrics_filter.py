"""``/metrics?name[]=…``: the runtime's server ignores the parameter, so the child selects.

A name selects a family (all its samples) or, as with prometheus_client, one of its sample names
(``…_bucket``). A name that does not exist selects nothing.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qs

import h11
import msgspec

from sglang_worker.system.http import HttpError, HttpResponse

PARAMETER = "name[]"
_RECOMPUTED = ("content-length", "content-encoding")


def wanted(query: str) -> frozenset[str]:
    """The names asked for; empty: everything."""
    return frozenset(parse_qs(query).get(PARAMETER, ()))


async def selected(answer: HttpResponse, names: frozenset[str]) -> HttpResponse:
    """The answer with the selected families alone; other answers than 200 as they are.

    Raises HttpError 502 when the runtime's answer breaks off.
    """
    if answer.status != 200:
        return answer
    body = answer.body
    try:
        whole = body if isinstance(body, bytes) else b"".join([chunk async for chunk in body])
    except (OSError, asyncio.TimeoutError, h11.ProtocolError):
        raise HttpError(502, "the runtime's metrics broke off") from None
    # Label values may hold what `str.splitlines` also takes for the end of a line.
    kept = "".join(select(io.StringIO(whole.decode(), newline="\n"), names))
    headers = {
        name: value for name, value in answer.headers.items() if name.lower() not in _RECOMPUTED
    }
    return msgspec.structs.replace(answer, body=kept.encode(), headers=headers)


def select(lines: Iterable[str], names: frozenset[str]) -> Iterator[str]:
    """The lines of text exposition that belong to the names, help and type included."""
    family = ""
    head: list[str] = []
    for line in lines:
        words = line.split(None, 3)
        if line.startswith("#"):
            if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
                continue
            if words[2] != family:
                family, head = words[2], []
            if family in names:
                yield line
            else:
                head.append(line)
        elif words:
            name = line.partition("{")[0].split()[0]
            if not name.startswith(family):
                family, head = name, []
            if name in names or family in names:
                yield from head
                head = []
                yield line
