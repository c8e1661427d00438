"""``/v1/loras``: list, load and unload LoRA adapters, shaped as the runtime's own routes are."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import unquote

from sglang_worker.system.conversion import RecordField
from sglang_worker.system.faults import BadRequest
from sglang_worker.system.json_schema import object_schema
from sglang_worker.system.routes import Call, Reply, Route
from sglang_worker.system.state import RouteSpec
from sglang_worker.system.typed_request import checked_arguments

PATH = "/v1/loras"
_FIELDS = {"lora_name": RecordField(str, True), "source": RecordField(dict[str, Any], True)}
_SOURCE_FIELDS = {"uri": RecordField(str, True)}


class LoraRefused(Exception):
    """The adapter cannot be loaded or unloaded; ``status`` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LoraCalls(Protocol):
    """Loads into SGLang and keeps discovery in step. All raise LoraRefused with a sentence."""

    def loaded(self) -> dict[str, int]:
        """Adapter id by name."""

    async def load(self, name: str, uri: str) -> tuple[int, str]:
        """Adapter id and a message; loading a loaded adapter again changes nothing."""

    async def unload(self, name: str) -> int:
        """The id that the adapter had."""


def lora_routes(loras: LoraCalls) -> list[Route]:
    return [
        Route(
            spec=RouteSpec(path=PATH, methods=("GET", "POST"), summary="list or load adapters"),
            handler=_collection(loras),
            reads=("GET",),
            schema=object_schema(_FIELDS, accepts_more=False),
        ),
        Route(
            spec=RouteSpec(
                path=PATH + "/", methods=("DELETE",), prefix=True, summary="unload an adapter"
            ),
            handler=_unload(loras),
        ),
    ]


def _collection(loras: LoraCalls) -> Any:
    async def handle(call: Call) -> Reply:
        if call.request.method == "GET":
            loaded = loras.loaded()
            return Reply(200, {"status": "success", "loras": loaded, "count": len(loaded)})
        body = checked_arguments(call.body, _FIELDS, "field")
        source = checked_arguments(body["source"], _SOURCE_FIELDS, "field source.")
        name, uri = body["lora_name"], source["uri"]
        if not name or not uri:
            raise BadRequest("lora_name and source.uri must not be empty")
        try:
            lora_id, message = await loras.load(name, uri)
        except LoraRefused as refused:
            return _refusal(refused, name)
        return _success(message, name, lora_id)

    return handle


def _unload(loras: LoraCalls) -> Any:
    async def handle(call: Call) -> Reply:
        try:
            name = unquote(call.rest, errors="strict")
        except UnicodeDecodeError:
            raise BadRequest("the adapter's name in the path is not UTF-8") from None
        try:
            lora_id = await loras.unload(name)
        except LoraRefused as refused:
            return _refusal(refused, name)
        return _success(f"LoRA adapter '{name}' unloaded successfully", name, lora_id)

    return handle


def _success(message: str, name: str, lora_id: int) -> Reply:
    return Reply(
        200, {"status": "success", "message": message, "lora_name": name, "lora_id": lora_id}
    )


def _refusal(refused: LoraRefused, name: str) -> Reply:
    return Reply(
        refused.status,
        {"status": "error", "message": str(refused), "lora_name": name, "error": str(refused)},
    )
