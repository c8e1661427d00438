"""What can be wrong with one medium, in words fit for the client, and what is not its fault."""

from __future__ import annotations


class MediaError(Exception):
    """The message names neither internal addresses nor the content."""


class MediaBusy(Exception):
    """There is no room for it now; nothing is wrong with it, and later it may be taken."""
