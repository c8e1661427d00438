"""Request ids handed to SGLang.

Always fresh, never the client's: SGLang aborts by prefix, so ids must be unique and of one length,
or aborting ``a`` would end ``ab`` as well.
"""

from __future__ import annotations

import uuid

ID_LENGTH = 32
PROBE_PREFIX = "probe-"


def new_request_id() -> str:
    """32 hexadecimal digits, the same form that SGLang gives the samples of n > 1."""
    return uuid.uuid4().hex


def new_probe_id() -> str:
    """As long as any other id, and recognisable: a drain does not wait for health probes."""
    return PROBE_PREFIX + uuid.uuid4().hex[len(PROBE_PREFIX) :]


def is_probe_id(request_id: str) -> bool:
    return request_id.startswith(PROBE_PREFIX)
