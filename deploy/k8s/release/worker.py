"""One worker's system listener, asked over a Pod address or a port-forward."""

from __future__ import annotations

from sglang_worker.ctl.client import Reply, WorkerClient
from sglang_worker.ctl.codes import CtlError

from .model import CallResult, Kind, Verdict, WorkerView

STATUS_S = 5.0
CALL_S = 15.0  # above the worker's own patience with discovery
DRAIN_PATH = "/engine/drain"


class Worker:
    """``client`` speaks to one Pod; each call is bounded and none raises."""

    def __init__(self, client: WorkerClient) -> None:
        self._client = client

    def view(self) -> WorkerView:
        """Its state, or why there is none. A 404 on status is believed to be "no drain" only when
        the listener itself lists its routes, as this worker's does and upstream's does not."""
        try:
            reply = self._client.get("/engine/status", STATUS_S)
            if reply.status == 404:
                return self._without_status(self._client.get("/engine", STATUS_S))
        except CtlError as error:
            return WorkerView(Kind.UNREACHABLE, problem=str(error))
        if reply.status == 200 and isinstance(reply.body.get("state"), str):
            reason = reply.body.get("reason")
            return WorkerView(
                Kind.DRAINABLE, reply.body["state"], None if reason is None else str(reason)
            )
        kind = _BY_STATUS.get(reply.status, Kind.UNKNOWN)
        return WorkerView(kind, problem=reply.problem)

    def ready(self) -> str | None:
        """None when it serves and is healthy, else what it waits for."""
        try:
            reply = self._client.get("/ready", STATUS_S)
        except CtlError as error:
            return str(error)
        if reply.status == 200:
            return None
        return str(reply.body.get("reason") or reply.problem)

    def drain(self) -> CallResult:
        return self._ask(DRAIN_PATH, accepted=(200, 202))

    def resume(self) -> CallResult:
        return self._ask("/engine/resume", accepted=(200,))

    def _ask(self, path: str, accepted: tuple[int, ...]) -> CallResult:
        try:
            reply = self._client.post(path, CALL_S)
        except CtlError as error:
            # The call may have arrived: asking again is safe, both calls may be repeated.
            return CallResult(Verdict.AGAIN, str(error))
        if reply.status in accepted:
            return CallResult(Verdict.ACCEPTED)
        verdict = Verdict.AGAIN if reply.status == 503 else Verdict.REFUSED
        return CallResult(verdict, f"{reply.problem} ({reply.status})")

    def _without_status(self, overview: Reply) -> WorkerView:
        routes = overview.body.get("routes")
        if overview.status == 503:
            return WorkerView(Kind.STARTING, problem=overview.problem)
        if overview.status != 200 or not isinstance(routes, list):
            return WorkerView(
                Kind.UNKNOWN,
                problem="its listener has no /engine: is it this worker? Upstream's has no drain",
            )
        if any(isinstance(one, dict) and one.get("path") == DRAIN_PATH for one in routes):
            return WorkerView(Kind.STARTING, problem="its status is not there yet")
        return WorkerView(Kind.NO_DRAIN)


_BY_STATUS = {503: Kind.STARTING, 401: Kind.FORBIDDEN, 403: Kind.FORBIDDEN}
