"""What SGLang is told of where a request comes from: its trace, and its id outside this worker.

Inside SGLang a request has a fresh id of its own (`requests.ids`). The frontend's id and the
client's travel beside the trace, so that SGLang's request log can be matched with the others.
"""

from __future__ import annotations

from typing import Any

REQUEST_ID = "request-id"


def wants_headers(server_args: Any) -> bool:
    """SGLang traces requests or logs them; else nobody would look."""
    return bool(server_args.enable_trace or server_args.log_requests)


def carried_headers(context: Any) -> dict[str, str]:
    """For ``external_trace_header`` of SGLang's requests; ``context`` is Dynamo's, whose headers
    are ``traceparent``, its own ``request-id`` and the client's ``x-request-id``, or none."""
    return {REQUEST_ID: context.id(), **(context.trace_headers() or {})}
