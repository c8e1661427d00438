"""The browser page of ``GET /engine``: one file, no outside resources."""

from __future__ import annotations

import functools
from pathlib import Path

from sglang_worker.system.http import HttpResponse

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@functools.cache
def _page() -> bytes:
    return Path(__file__).with_name("page.html").read_bytes()


def page_response() -> HttpResponse:
    return HttpResponse(
        status=200,
        body=_page(),
        headers={
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            "Vary": "Accept",
        },
    )
