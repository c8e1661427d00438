"""Configured routes bound to SGLang's methods at startup: all of them, or startup fails.

Methods are looked up on the classes, never on instances: what a check without an engine accepts is
what a worker with one accepts, and no object that happens to be callable becomes a route.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from sglang_worker.errors import ConfigError
from sglang_worker.system.bridge import SyncBridge
from sglang_worker.system.call_plan import CallPlan, plan_call
from sglang_worker.system.descriptor import RouteDescriptor
from sglang_worker.system.faults import BadRequest

UNPICKLING_METHODS = frozenset(
    {
        "update_weights_from_tensor",
        "update_weights_from_ipc",
        "load_lora_adapter_from_tensors",
    }
)
WEIGHT_METHODS = UNPICKLING_METHODS | {"update_weights_from_distributed"}


class LifecycleRole(str, Enum):
    """Methods that change what the worker may serve: the lifecycle must carry them out."""

    PAUSE = "pause_generation"
    CONTINUE = "continue_generation"
    RELEASE = "release_memory_occupation"
    RESUME_MEMORY = "resume_memory_occupation"


class ResolvedMethod:
    """One descriptor that some class can serve."""

    def __init__(
        self, descriptor: RouteDescriptor, function: Callable[..., Any], plan: CallPlan
    ) -> None:
        self.descriptor = descriptor
        self.function = function
        self.plan = plan

    @property
    def role(self) -> LifecycleRole | None:
        roles = {role.value: role for role in LifecycleRole}
        return roles.get(self.descriptor.method)

    @property
    def target_name(self) -> str:
        return f"{self.descriptor.target}.{self.descriptor.method}"


class BoundMethod:
    """One resolved method on the running engine; nothing in a request can change it."""

    def __init__(self, resolved: ResolvedMethod, owner: Any) -> None:
        self.resolved = resolved
        self._method: Callable[..., Any] = getattr(owner, resolved.descriptor.method)

    async def invoke(self, body: Mapping[str, Any], bridge: SyncBridge) -> Any:
        """Call with the body's values. Raises BadRequest, or whatever SGLang raises."""
        arguments = self.resolved.plan.arguments(body)
        is_async = inspect.iscoroutinefunction(self._method)
        if self.resolved.descriptor.target == "engine" and not is_async:
            result = await bridge.run(self._method, arguments)
        else:
            # Also a sync method of the tokenizer manager: its sockets allow no other thread.
            result = self._method(**arguments)
        if inspect.isawaitable(result):
            result = await result
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise BadRequest("the method streams this result, which a route cannot carry")
        return result


def resolve_against_classes(
    descriptors: Iterable[RouteDescriptor], engine_class: type, tokenizer_manager_class: type
) -> tuple[ResolvedMethod, ...]:
    """Resolve every descriptor, or raise ConfigError naming the first that cannot be."""
    owners = {"engine": engine_class, "tm": tokenizer_manager_class}
    return tuple(_resolve(one, owners[one.target]) for one in descriptors)


def bind(
    descriptors: Iterable[RouteDescriptor], engine: Any, tokenizer_manager: Any
) -> tuple[BoundMethod, ...]:
    """Bind every descriptor to the running engine, or raise ConfigError."""
    targets = {"engine": engine, "tm": tokenizer_manager}
    resolved = resolve_against_classes(descriptors, type(engine), type(tokenizer_manager))
    return tuple(BoundMethod(one, targets[one.descriptor.target]) for one in resolved)


def _resolve(descriptor: RouteDescriptor, owner: type) -> ResolvedMethod:
    where = {"engine": "the SGLang Engine", "tm": "SGLang's tokenizer manager"}[descriptor.target]
    named = f"engine route {descriptor.text!r}: "
    try:
        static = inspect.getattr_static(owner, descriptor.method)
    except AttributeError:
        raise ConfigError(f"{named}{where} has no method {descriptor.method!r}") from None
    if isinstance(static, property) or not callable(function := getattr(owner, descriptor.method)):
        raise ConfigError(f"{named}{descriptor.method!r} of {where} is not callable")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(
            f"{named}{descriptor.method!r} of {where} streams its results, which a route cannot "
            "carry; send inference requests to the frontend"
        )
    plan = plan_call(function, owner, descriptor.text, typed=descriptor.target == "tm")
    return ResolvedMethod(descriptor, function, plan)
