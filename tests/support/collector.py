"""A collector of spans on loopback that keeps what it is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Collector(grpc.GenericRpcHandler):
    """An OTLP receiver. ``received``: every export, as the bytes on the wire; ids are in them as
    they are."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, handler_call_details: Any) -> Any:
        known = handler_call_details.method == EXPORT
        return grpc.unary_unary_rpc_method_handler(self._export) if known else None

    def _export(self, request: bytes, context: Any) -> bytes:
        self.received.append(request)
        return b""

    def close(self) -> None:
        self._server.stop(0).wait()
