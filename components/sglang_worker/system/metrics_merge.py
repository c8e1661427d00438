"""Several processes' metrics as one text: each family once, the gateways' samples labelled.

A sample of gateway i gets ``gateway="i"``; samples of the main process stay as they are. Free of
HTTP.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

LABEL = "gateway"


class _Family:
    def __init__(self) -> None:
        self.head: list[str] = []
        self.samples: list[str] = []


def merge(main: str, gateways: Sequence[str | None]) -> str:
    """Prometheus text of all; None: that gateway did not answer, its series are missing."""
    families: dict[str, _Family] = {}
    _take(families, main, None)
    for index, text in enumerate(gateways):
        if text is not None:
            _take(families, text, index)
    return "".join(_lines(families))


def _lines(families: dict[str, _Family]) -> Iterator[str]:
    for family in families.values():
        yield from family.head
        yield from family.samples


def _take(families: dict[str, _Family], text: str, gateway: int | None) -> None:
    name = ""
    described: set[str] = set()
    # Label values may hold what `str.splitlines` also takes for the end of a line.
    for line in io.StringIO(text, newline="\n"):
        words = line.split(None, 3)
        if not words:
            continue
        if line.startswith("#"):
            if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
                continue
            if words[2] != name:
                name = words[2]
                if name not in families:
                    families[name] = _Family()
                    described.add(name)
            if name in described:
                families[name].head.append(line)
            continue
        sample = line.partition("{")[0].split()[0]
        if not sample.startswith(name) or not name:
            name = sample
        family = families.setdefault(name, _Family())
        family.samples.append(line if gateway is None else labelled(line, gateway))


def labelled(sample: str, gateway: int) -> str:
    """``name{a="b"} 1`` or ``name 1`` with one more label."""
    label = f'{LABEL}="{gateway}"'
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f"{name}{{{label}{'' if rest.startswith('}') else ','}{rest}"
    name, _, rest = sample.partition(" ")
    return f"{name}{{{label}}} {rest}"
