"""The one spelling of booleans in variables and files (Dynamo's, made strict)."""

from __future__ import annotations

from sglang_worker.errors import ConfigError

TRUE_WORDS = ("1", "true", "on", "yes")
FALSE_WORDS = ("0", "false", "off", "no", "")
ACCEPTED = "1/true/on/yes or 0/false/off/no (empty is false)"


def parse_boolean(source: str, text: str) -> bool:
    """``text`` as a boolean; raises ConfigError naming ``source`` (a flag or a variable)."""
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ConfigError(f"{source}={text!r} is not a boolean; accepted: {ACCEPTED}")
