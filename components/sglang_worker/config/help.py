"""``--help`` and ``--version``: our flags first, then Dynamo's, then SGLang's."""

from __future__ import annotations

import importlib.metadata
import textwrap

from sglang_worker.config.flags import GROUPS, Kind, OwnFlag
from sglang_worker.config.strict_parser import StrictParser
from sglang_worker.config.values import accepted_words

USAGE = """\
usage: sglang-worker --model-path MODEL [flags]
       sglang-worker --check[=static|model] --model-path MODEL [flags]
       sglang-worker ctl {status,drain,resume,server-info} [...]

A Dynamo worker that serves one SGLang engine. Flags win over variables."""

_CHECK = (
    "--check[=static|model]",
    "start nothing, print the plan as JSON, exit 0 or 2; static (default) reads no model",
)
_PACKAGES = (("sglang", "sglang"), ("dynamo", "ai-dynamo"))


def version_text() -> str:
    """One line, from installed metadata: nothing is imported."""
    parts = [f"sglang-worker {_version('dynamo-sglang-worker')}"]
    parts += [f"{label} {_version(package)}" for label, package in _PACKAGES]
    return ", ".join(parts)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def own_help() -> str:
    sections = [USAGE]
    for title, flags in GROUPS:
        sections.append(f"{title}:\n" + "\n".join(_entry(*_described(flag)) for flag in flags))
    sections.append(
        "This program:\n"
        + "\n".join(
            _entry(*one) for one in (_CHECK, ("--version", "versions of worker, SGLang and Dynamo"))
        )
    )
    return "\n\n".join(sections)


def full_help() -> str:
    """Needs Dynamo's and SGLang's parsers, hence seconds."""
    from sglang_worker.config import dynamo_flags, sglang_flags

    return "\n\n".join(
        [
            own_help(),
            _options("Dynamo", dynamo_flags.declare_runtime().parser),
            _options("Router settings in the model card", dynamo_flags.declare_router().parser),
            _options("SGLang engine", sglang_flags.build_parser()),
        ]
    )


def _described(flag: OwnFlag) -> tuple[str, str]:
    head = flag.name or str(flag.variable)
    if flag.name and flag.kind is Kind.SWITCH:
        head = f"{flag.name}, --no-{flag.name[2:]}"
    notes = []
    if flag.name and flag.variable:
        notes.append(flag.variable)
    if flag.kind is not Kind.SWITCH:
        notes.append(f"accepts {accepted_words(flag)}")
    notes.append(f"default {default_words(flag)}")
    return head, f"{flag.help} ({'; '.join(notes)})"


def default_words(flag: OwnFlag) -> str:
    if flag.default is None or flag.default == ():
        return "none"
    if isinstance(flag.default, bool):
        return "on" if flag.default else "off"
    return f"{flag.default:g}" if isinstance(flag.default, float) else str(flag.default)


def _entry(head: str, text: str) -> str:
    body = textwrap.fill(
        text, width=96, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
    )
    return f"  {head}\n{body}"


def _options(title: str, parser: StrictParser) -> str:
    """argparse's own list without its usage block, which would fill screens."""
    parser.usage = ""
    _, _, options = parser.format_help().partition("\n\n")
    return f"{title} flags:\n\n{options.strip()}"
