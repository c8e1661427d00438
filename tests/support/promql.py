"""Just enough of PromQL to tell a well-formed expression, and what it asks for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>"(?:[^"\\]|\\.)*") |
    (?P<duration>\[\s*(?:\$__\w+|(?:\d+(?:ms|[smhdwy]))+)(?::(?:(?:\d+(?:ms|[smhdwy]))+)?)?\s*\]) |
    (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf\b) |
    (?P<word>[a-zA-Z_:][\w:]*) |
    (?P<op>==|!=|>=|<=|=~|!~|[-+*/%^(){},=<>])
    )""",
    re.VERBOSE,
)
AGGREGATIONS = {"sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile", "group"}
FUNCTIONS = {
    "rate",
    "irate",
    "increase",
    "delta",
    "histogram_quantile",
    "min_over_time",
    "max_over_time",
    "avg_over_time",
    "changes",
    "absent",
    "clamp_min",
    "label_replace",
    "time",
}
_NEED_RANGE = {
    "rate",
    "irate",
    "increase",
    "delta",
    "min_over_time",
    "max_over_time",
    "avg_over_time",
    "changes",
}
BINARY = {"+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless"}
COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}
MATCHERS = {"=", "!=", "=~", "!~"}


class Asked(msgspec.Struct):
    """Series that an expression reads, and the labels that it matches or groups by."""

    metrics: set[str] = msgspec.field(default_factory=set)
    labels: set[str] = msgspec.field(default_factory=set)


class Malformed(ValueError):
    """Prometheus would not take the expression."""


def parse(expression: str) -> Asked:
    parser = _Parser(expression)
    parser.expression()
    if parser.peek()[1]:
        raise Malformed(f"{expression!r}: {parser.peek()[1]!r} is one too many")
    return parser.asked


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.asked = Asked()
        self._tokens = list(self._split(text))
        self._at = 0

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise Malformed(f"{text!r}: unreadable at {text[position : position + 20]!r}")
            kind = str(match.lastgroup)
            yield kind, match[kind]
            position = match.end()

    def peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def take(self, expected: str | None = None) -> tuple[str, str]:
        token = self.peek()
        if token[0] == "end" or (expected is not None and token[1] != expected):
            raise Malformed(f"{self.text!r}: {expected or 'more'} instead of {token[1]!r}")
        self._at += 1
        return token

    def expression(self) -> None:
        self._unary()
        while self.peek()[1] in BINARY:
            operator = self.take()[1]
            if operator in COMPARISONS and self.peek()[1] == "bool":
                self.take()
            if self.peek()[1] in ("on", "ignoring"):
                self.take()
                self._label_list()
                if self.peek()[1] in ("group_left", "group_right"):
                    self.take()
                    if self.peek()[1] == "(":
                        self._label_list()
            self._unary()

    def _unary(self) -> None:
        if self.peek()[1] in ("-", "+"):
            self.take()
        self._atom()

    def _atom(self) -> None:
        kind, text = self.take()
        if text == "(":
            self.expression()
            self.take(")")
        elif kind == "word" and text in AGGREGATIONS:
            self._aggregation()
        elif kind == "word" and self.peek()[1] == "(":
            self._function(text)
        elif kind == "word":
            self._selector(text)
        elif kind not in ("number", "string"):
            raise Malformed(f"{self.text!r}: {text!r} is no value")

    def _aggregation(self) -> None:
        grouped = self._grouping()
        self._arguments()
        if not grouped:
            self._grouping()

    def _grouping(self) -> bool:
        if self.peek()[1] not in ("by", "without"):
            return False
        self.take()
        self._label_list()
        return True

    def _function(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise Malformed(f"{self.text!r}: unknown function {name}")
        first = self._at
        self._arguments()
        ranges = [token for token in self._tokens[first : self._at] if token[0] == "duration"]
        if name in _NEED_RANGE and not ranges:
            raise Malformed(f"{self.text!r}: {name} needs a range")

    def _arguments(self) -> None:
        self.take("(")
        while self.peek()[1] != ")":
            self.expression()
            if self.peek()[1] == ",":
                self.take()
            elif self.peek()[1] != ")":
                raise Malformed(f"{self.text!r}: {self.peek()[1]!r} between arguments")
        self.take(")")

    def _selector(self, name: str) -> None:
        self.asked.metrics.add(name)
        if self.peek()[1] == "{":
            self.take()
            while self.peek()[1] != "}":
                self._matcher()
            self.take("}")
        if self.peek()[0] == "duration":
            self.take()

    def _matcher(self) -> None:
        kind, label = self.take()
        operator = self.take()[1]
        value, _ = self.take()
        if kind != "word" or operator not in MATCHERS or value != "string":
            raise Malformed(f"{self.text!r}: matcher of {label!r}")
        self.asked.labels.add(label)
        if self.peek()[1] == ",":
            self.take()

    def _label_list(self) -> None:
        self.take("(")
        while self.peek()[1] != ")":
            kind, label = self.take()
            if kind != "word":
                raise Malformed(f"{self.text!r}: {label!r} is no label")
            self.asked.labels.add(label)
            if self.peek()[1] == ",":
                self.take()
        self.take(")")


def expressions(folder: Path) -> Iterator[tuple[str, str]]:
    """``(where, expression)`` of every dashboard (.json) and PrometheusRule (.yaml) in a folder."""
    for file in sorted(folder.glob("*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{file.name}: {panel['title']}", target["expr"]
    for file in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document.get("kind") == "PrometheusRule":
                for group in document["spec"]["groups"]:
                    for rule in group["rules"]:
                        yield f"{file.name}: {rule['alert']}", rule["expr"]
