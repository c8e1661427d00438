"""How one method is called from a JSON body, read from its signature once at startup."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.errors import ConfigError
from sglang_worker.system.conversion import RecordField, is_record
from sglang_worker.system.typed_request import TypedRequest, checked_arguments

_HTTP_REQUEST_MODULES = frozenset({"fastapi", "fastapi.requests", "starlette.requests"})
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class CallPlan:
    """Turns bodies into keyword arguments for one method."""

    def __init__(
        self,
        keywords: Mapping[str, RecordField],
        *,
        accepts_more: bool = False,
        request_parameter: str | None = None,
        request: TypedRequest | None = None,
        http_parameters: tuple[str, ...] = (),
    ) -> None:
        self.keywords = keywords
        self.accepts_more = accepts_more
        self.request_parameter = request_parameter
        self.request = request
        self.http_parameters = http_parameters

    def fields(self) -> Mapping[str, RecordField]:
        """What a body may hold: the request's fields or the method's keywords."""
        return self.keywords if self.request is None else self.request.fields

    def checked(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The body's values after every check, before a request object is built of them."""
        if self.request is not None:
            return self.request.arguments(body)
        return checked_arguments(body, self.keywords, "keyword", accepts_more=self.accepts_more)

    def arguments(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the call. Raises BadRequest naming what does not fit."""
        nothing = dict.fromkeys(self.http_parameters)
        if self.request is None or self.request_parameter is None:
            return {**self.checked(body), **nothing}
        return {self.request_parameter: self.request.build(body), **nothing}


# Methods that hand their keywords on to a request of SGLang's: those are its fields.
KEYWORDS_OF = {"start_profile": ("sglang.srt.managers.io_struct", "ProfileReq", ("req_type",))}


def plan_call(function: Callable[..., Any], owner: type, text: str, *, typed: bool) -> CallPlan:
    """Read ``function``, a method of ``owner``, for the descriptor ``text``.

    ``typed``: one dataclass or msgspec parameter takes the whole body (tokenizer manager).
    Raises ConfigError when no JSON body could ever call it.
    """
    keywords: dict[str, RecordField] = {}
    records: dict[str, type] = {}
    http_parameters: list[str] = []
    accepts_more = False
    for parameter in _parameters(function, owner, text):
        annotation = _annotation(function, owner, parameter)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            accepts_more = True
        elif parameter.kind in (*_VARIADIC, inspect.Parameter.POSITIONAL_ONLY):
            raise _unusable(text, f"parameter {parameter.name!r} cannot be given by name")
        elif _is_http_request(annotation):
            http_parameters.append(parameter.name)
        elif typed and (record := _record_of(annotation)) is not None:
            records[parameter.name] = record
        else:
            required = parameter.default is inspect.Parameter.empty
            keywords[parameter.name] = RecordField(annotation, required)
    if accepts_more and (known := _known_keywords(function.__name__)) is not None:
        keywords, accepts_more = {**known, **keywords}, False
    if not records:
        return CallPlan(keywords, accepts_more=accepts_more, http_parameters=tuple(http_parameters))
    if len(records) > 1:
        raise _unusable(text, f"it takes several request objects: {', '.join(records)}")
    if needed := [name for name, field in keywords.items() if field.required]:
        raise _unusable(text, f"it needs {', '.join(needed)} besides its request object")
    ((name, record),) = records.items()
    return CallPlan(
        {},
        request_parameter=name,
        request=TypedRequest(record),
        http_parameters=tuple(http_parameters),
    )


def _known_keywords(method: str) -> dict[str, RecordField] | None:
    if method not in KEYWORDS_OF:
        return None
    module, name, set_by_method = KEYWORDS_OF[method]
    record = getattr(importlib.import_module(module), name, None)
    if record is None:
        return None
    fields = TypedRequest(record).fields
    return {field: how for field, how in fields.items() if field not in set_by_method}


def _parameters(function: Callable[..., Any], owner: type, text: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise _unusable(text, f"its signature cannot be read: {error}") from error
    static = inspect.getattr_static(owner, function.__name__, None)
    is_bound_by_class = isinstance(static, (staticmethod, classmethod))
    return parameters if is_bound_by_class else parameters[1:]


def _annotation(function: Callable[..., Any], owner: type, parameter: inspect.Parameter) -> Any:
    """One parameter's annotation, resolved; Any when it names what only type checkers see."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    unwrapped = inspect.unwrap(function)
    # Each on its own: `self: TokenizerManager` of a mixin cannot be resolved, the others can.
    holder = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    names = {base.__name__: base for base in owner.__mro__}
    try:
        hints = typing.get_type_hints(
            holder, getattr(unwrapped, "__globals__", {}), names, include_extras=True
        )
    except (NameError, TypeError, AttributeError, SyntaxError):
        return Any
    return hints["it"]


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union (or the annotation itself) without None and Annotated."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [
            one
            for choice in typing.get_args(annotation)
            if choice is not type(None)
            for one in _alternatives(choice)
        ]
    return [annotation]


def _record_of(annotation: Any) -> type | None:
    choices = _alternatives(annotation)
    return choices[0] if len(choices) == 1 and is_record(choices[0]) else None


def _is_http_request(annotation: Any) -> bool:
    choices = _alternatives(annotation)
    return len(choices) == 1 and (
        getattr(choices[0], "__name__", "") == "Request"
        and getattr(choices[0], "__module__", "") in _HTTP_REQUEST_MODULES
    )


def _unusable(text: str, reason: str) -> ConfigError:
    return ConfigError(f"engine route {text!r}: the method cannot be a route, {reason}")
