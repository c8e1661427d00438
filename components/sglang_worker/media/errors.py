"""What can be wrong with one medium, in words fit for the client."""

from __future__ import annotations


class MediaError(Exception):
    """The message names neither internal addresses nor the content."""
