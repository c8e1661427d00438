"""HTTP to one worker's system listener. Only the standard library: the client must start fast."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

from sglang_worker.ctl.codes import Code, CtlError


class Reply(NamedTuple):
    """HTTP status and the JSON body; a body that is no JSON object becomes ``{"error": text}``."""

    status: int
    body: dict[str, Any]

    @property
    def problem(self) -> str:
        return str(self.body.get("error") or f"the worker answered {self.status}")


class WorkerClient:
    """``token`` is sent as a bearer token; ``timeout_s`` bounds each single call."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 10.0) -> None:
        self._url = checked_url(url)
        self._token = token
        self._timeout_s = timeout_s

    @property
    def address(self) -> str:
        return self._url.geturl()

    def get(self, path: str, timeout_s: float | None = None) -> Reply:
        return self._call("GET", path, timeout_s)

    def post(self, path: str, timeout_s: float | None = None) -> Reply:
        return self._call("POST", path, timeout_s)

    def _call(self, method: str, path: str, timeout_s: float | None) -> Reply:
        """Raises CtlError: UNREACHABLE when nobody answers, TIMEOUT when the answer takes long."""
        connection = self._connection(timeout_s or self._timeout_s)
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, self._url.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            return Reply(response.status, _object(response.read()))
        except TimeoutError:
            raise CtlError(Code.TIMEOUT, f"{self.address} does not answer") from None
        except (OSError, http.client.HTTPException) as error:
            raise CtlError(Code.UNREACHABLE, f"cannot reach {self.address}: {error}") from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)


def checked_url(url: str) -> SplitResult:
    """``127.0.0.1:8081`` is taken for http. Raises CtlError for what is no address."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise CtlError(Code.USAGE, f"--url {url!r} is no http:// or https:// address")
    return parts


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if isinstance(value, dict):
        return value
    return {"error": body.decode(errors="replace").strip()[:300]}
