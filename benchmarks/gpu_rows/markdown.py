"""Cells of a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def line(values: Iterable[str]) -> str:
    return "| " + " | ".join(values) + " |"


def head(names: Sequence[str]) -> list[str]:
    return [line(names), line(["---"] * len(names))]
