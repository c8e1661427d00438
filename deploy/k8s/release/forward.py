"""How a worker's listener is reached: by the Pod's address, or through the API server."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Any

from kubernetes import client
from kubernetes.stream import portforward
from sglang_worker.ctl.client import WorkerClient

from .model import Pod
from .worker import Worker

Connect = Callable[[Pod], Worker]


class _ForwardedConnection(http.client.HTTPConnection):
    """HTTP over one port-forward, opened on the first request and closed with the connection."""

    def __init__(self, open_forward: Callable[[], Any], port: int, timeout_s: float) -> None:
        super().__init__("localhost", port, timeout=timeout_s)
        self._open = open_forward
        self._forward: Any = None

    def connect(self) -> None:
        try:
            self._forward = self._open()
        except client.ApiException as error:
            raise ConnectionError(f"no port-forward: {error.reason or error.status}") from None
        self.sock = self._forward.socket(self.port)
        self.sock.settimeout(self.timeout)

    def close(self) -> None:
        super().close()
        if self._forward is not None:
            self._forward.close()


class ForwardedClient(WorkerClient):
    """The worker's client with every connection running through the API server."""

    def __init__(self, open_forward: Callable[[], Any], pod: Pod, token: str | None) -> None:
        super().__init__(f"http://{pod.name}:{pod.port}", token)
        self._open = open_forward
        self._port = pod.port

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return _ForwardedConnection(self._open, self._port, timeout_s)


def by_port_forward(api: client.CoreV1Api, namespace: str, token: str | None) -> Connect:
    def connect(pod: Pod) -> Worker:
        def open_forward() -> Any:
            call = api.connect_get_namespaced_pod_portforward
            return portforward(call, pod.name, namespace, ports=str(pod.port))

        return Worker(ForwardedClient(open_forward, pod, token))

    return connect


def by_address(token: str | None) -> Connect:
    def connect(pod: Pod) -> Worker:
        host = pod.address or "0.0.0.0"
        host = f"[{host}]" if ":" in host else host
        return Worker(WorkerClient(f"http://{host}:{pod.port}", token))

    return connect
