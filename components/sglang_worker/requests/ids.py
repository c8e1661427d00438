"""Request ids handed to SGLang.

Always fresh, never the client's: SGLang aborts by prefix, so ids must be unique and of one length,
or aborting ``a`` would end ``ab`` as well.
"""

from __future__ import annotations

import uuid

ID_LENGTH = 32
PROBE_PREFIX = "probe-"

_mark = ""


def gateway_mark(index: int) -> str:
    """How all ids of one gateway begin; of one length, and no beginning of a hexadecimal id."""
    return f"g{index:03d}-"


def mark(prefix: str) -> None:
    """From now on the clients' requests of this process begin with ``prefix``, so that another
    process can end all of them. Health probes do not: an idle engine lets go of them at once."""
    global _mark
    _mark = prefix


def new_request_id() -> str:
    """As long as the ids that SGLang gives: 32 hexadecimal digits, or the mark and 27."""
    return _mark + uuid.uuid4().hex[len(_mark) :]


def new_probe_id() -> str:
    """As long as any other id, and recognisable: a drain does not wait for health probes."""
    return PROBE_PREFIX + uuid.uuid4().hex[len(PROBE_PREFIX) :]


def is_probe_id(request_id: str) -> bool:
    return request_id.startswith(PROBE_PREFIX)
