"""Memory tags: which ones a release or a resume is about. Names are SGLang's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALL_TAGS = ("kv_cache", "weights", "cuda_graph")


class InvalidTags(ValueError):
    """The body's ``tags`` is not a list of known tags; the message says what is."""


def requested_tags(body: Mapping[str, Any]) -> frozenset[str]:
    """The tags of a request body; none given (or null) means all of them."""
    tags = body.get("tags")
    if tags is None:
        return frozenset(ALL_TAGS)
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise InvalidTags(f"tags must be a list of names out of {', '.join(ALL_TAGS)}")
    unknown = sorted(set(tags) - set(ALL_TAGS))
    if unknown:
        raise InvalidTags(
            f"unknown memory tag {', '.join(unknown)}: known are {', '.join(ALL_TAGS)}"
        )
    return frozenset(tags) or frozenset(ALL_TAGS)


def in_order(tags: frozenset[str]) -> list[str]:
    """SGLang's own order, so that equal sets give equal calls."""
    return [tag for tag in ALL_TAGS if tag in tags]
