"""Removes secrets from whatever leaves the process: server info, plans, dumps, logs.

Pure and total: any nesting of mappings and sequences, field names in any spelling, command lines
as a list or as one string. It errs on the side of hiding: a value whose name sounds secret goes.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from typing import Any

REDACTED = "***"

# Whole names (lower case, `-` as `_`) and endings. Counts and paths of tokens are no secrets.
MIN_SECRET_LENGTH = 6  # shorter ones would cut ordinary words out of every text

_SECRET_NAMES = frozenset(
    {
        "api_key",
        "admin_api_key",
        "authorization",
        "password",
        "passwd",
        "secret",
        "token",
        "watermark_key",
        "watermark_key_b",
        "watermark_config",
        "ssl_keyfile_password",
        "credential",
        "credentials",
    }
)
_SECRET_ENDINGS = (
    "_api_key",
    "_password",
    "_passwd",
    "_secret",
    "_secret_key",
    "_access_key",
    "_private_key",
    "_auth_token",
    "_access_token",
    "_bearer_token",
    "_hf_token",
    "_watermark_key",
    "_credential",
    "_credentials",
)
_ALSO_SECRET = frozenset({"hf_token", "auth_token", "access_token", "bearer_token", "secret_key"})
_COMMAND_NAMES = frozenset({"launch_command", "command", "cmdline", "argv"})
_URL_PASSWORD = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@:]*:[^/\s@]+@")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]+")
# `name='value'` and `'name': 'value'`, as Python shows records, calls and dictionaries.
_NAMED_IN_TEXT = re.compile(
    r"""(?P<flag>['"]?\b[A-Za-z_]\w*['"]?)(?P<gap>\s*[=:]\s*)"""
    r"""(?P<value>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
)
# `--flag value` and `--flag=value` inside a text, the value plain or in quotes.
_FLAG_IN_TEXT = re.compile(
    r"""(?P<flag>--?[A-Za-z][\w-]*)(?P<gap>\s*=\s*|\s+)(?P<value>'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"]+)"""
)


def is_secret_name(name: str) -> bool:
    """Whether a field, flag or variable of this name holds a secret."""
    word = name.strip().lstrip("-").lower().replace("-", "_").replace(".", "_")
    return word in _SECRET_NAMES or word in _ALSO_SECRET or word.endswith(_SECRET_ENDINGS)


def redact(value: Any, known_secrets: Set[str] = frozenset()) -> Any:
    """A copy of ``value`` without secrets; ``known_secrets`` are also cut out of every text.

    Secrets found under their own name anywhere in ``value`` are looked for in all its texts.
    """
    found = set(known_secrets) | set(_secret_texts(value))
    return _redact(value, frozenset(text for text in found if len(text) >= MIN_SECRET_LENGTH))


def redact_command(argv: Sequence[str]) -> str:
    """A command line as one quoted string, values of secret flags hidden."""
    return shlex.join(redact_arguments(argv))


def redact_arguments(argv: Sequence[str]) -> list[str]:
    """The command line with the values of secret flags hidden."""
    hidden: list[str] = []
    hide_next = False
    for token in map(str, argv):
        name, equals, _ = token.partition("=")
        if hide_next and not token.startswith("--"):
            hidden.append(REDACTED)
        elif equals and name.startswith("-") and is_secret_name(name):
            hidden.append(f"{name}={REDACTED}")
        else:
            hidden.append(_redact_string(token, frozenset()))
        hide_next = token.startswith("-") and not equals and is_secret_name(token)
    return hidden


def redact_text(text: str, known_secrets: Set[str] = frozenset()) -> str:
    """Hides passwords in URLs, bearer tokens, ``api_key='…'`` and the given secrets."""
    for secret in sorted(known_secrets, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    text = _NAMED_IN_TEXT.sub(_hide_flag, text)
    text = _URL_PASSWORD.sub(rf"\g<scheme>{REDACTED}@", text)
    return _BEARER.sub(rf"\g<1>{REDACTED}", text)


def _redact(value: Any, secrets: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _redact_field(name, item, secrets) for name, item in value.items()}
    if isinstance(value, str):
        return _redact_string(value, secrets)
    if isinstance(value, list | tuple):
        return (
            type(value)(_redact(item, secrets) for item in value)
            if not hasattr(value, "_fields")
            else tuple(_redact(item, secrets) for item in value)
        )
    if isinstance(value, set | frozenset):
        return type(value)(_redact(item, secrets) for item in value)
    return value


def _redact_field(name: Any, item: Any, secrets: frozenset[str]) -> Any:
    if isinstance(name, str) and is_secret_name(name):
        return item if item is None or isinstance(item, bool) or item == "" else REDACTED
    if isinstance(name, str) and name.lower() in _COMMAND_NAMES:
        if isinstance(item, str):
            return redact_text(_redact_command_text(item), secrets)
        if isinstance(item, list | tuple) and all(isinstance(token, str) for token in item):
            return [redact_text(token, secrets) for token in redact_arguments(item)]
    return _redact(item, secrets)


def _redact_command_text(text: str) -> str:
    """A command line as one text: as the shell would split it, else flag by flag."""
    try:
        argv = shlex.split(text)
    except ValueError:
        return _FLAG_IN_TEXT.sub(_hide_flag, text)
    cleaned = redact_arguments(argv)
    return text if cleaned == argv else " ".join(cleaned)


def _hide_flag(match: re.Match[str]) -> str:
    if not is_secret_name(match["flag"].strip("'\"")):
        return match[0]
    return f"{match['flag']}{match['gap']}{REDACTED}"


def _redact_string(text: str, secrets: frozenset[str]) -> str:
    """A text that is itself JSON is redacted as such: SGLang keeps several settings that way."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return redact_text(text, secrets)
        cleaned = _redact(parsed, secrets)
        return text if cleaned == parsed else json.dumps(cleaned)
    return redact_text(text, secrets)


def _secret_texts(value: Any) -> list[str]:
    """Texts that stand under a secret name, anywhere in ``value``."""
    if isinstance(value, Mapping):
        return [
            text
            for name, item in value.items()
            for text in (
                [item]
                if isinstance(name, str) and is_secret_name(name) and isinstance(item, str)
                else _secret_texts(item)
            )
        ]
    if isinstance(value, list | tuple | set | frozenset):
        return [text for item in value for text in _secret_texts(item)]
    return []


def secret_values(values: Mapping[str, Any]) -> frozenset[str]:
    """The secrets in ``values`` that are long enough to be looked for in any text."""
    return frozenset(text for text in _secret_texts(values) if len(text) >= MIN_SECRET_LENGTH)


def hide_in_logs(known_secrets: Set[str]) -> None:
    """From now on no log record of this process holds one of these secrets.

    SGLang logs its whole configuration when it starts, and replaces all handlers: so the records
    themselves are cleaned, not what a handler writes.
    """
    secrets = frozenset(text for text in known_secrets if len(text) >= MIN_SECRET_LENGTH)
    if not secrets:
        return
    make_record = logging.getLogRecordFactory()

    def make_clean_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make_record(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            return record  # arguments that do not fit the message: logging reports that itself
        if any(secret in text for secret in secrets):
            record.msg, record.args = redact_text(text, secrets), None
        return record

    logging.setLogRecordFactory(make_clean_record)
