"""docs/flags.md from the flag tables: ``python -m sglang_worker.config.flag_docs > docs/flags.md``.

A test compares the file with this output, so the page cannot fall behind the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sglang_worker.config import dynamo_flags
from sglang_worker.config.flags import GROUPS, Kind, OwnFlag
from sglang_worker.config.help import default_words
from sglang_worker.config.refused import REFUSED
from sglang_worker.config.strict_parser import StrictParser
from sglang_worker.config.values import accepted_words

INTRO = """\
# Flags and variables

<!-- Written by `python -m sglang_worker.config.flag_docs`; edit the tables, not this file. -->

Three groups of flags share the command line: the worker's own (first section), Dynamo's runtime
flags and SGLang's engine flags. SGLang's go through SGLang's own parser unchanged: every flag of
`python -m sglang.launch_server --help` works here. `sglang-worker --help` prints all three.

Rules that hold for all of them:

- A flag wins over its variable; a variable wins over the default. A variable takes the same checks
  as its flag. An empty variable is unset (a boolean one is false).
- Booleans are 1/true/on/yes and 0/false/off/no, in any case; anything else is an error.
- A mistake is one line on standard error that names the flag or the variable, its value and what
  is accepted; the exit code is 2 and no model was loaded. An unknown flag suggests the nearest.
- Names of planes are exact (`tcp`, not `TCP`).
- `--check` validates everything without starting anything and prints the plan as JSON: `static`
  reads no model, `model` also reads config.json and compares the loader hooks of target and
  draft by class. Exit code 0 or 2. What cannot be known is `"unknown"` with a reason; what the CPU
  reference platform cannot run is not refused, because the plan may be for another machine.
- `--version` prints one line; `--dump-config-to FILE` writes the resolved configuration, secrets
  redacted, readable by its owner only."""

WORKER_TYPES = """\
## Worker types

| flags | worker type | default endpoint |
| --- | --- | --- |
| none, or `--disaggregation-mode null`, `agg`, `pd` | aggregated | `backend.generate` |
| `--disaggregation-mode decode` | decode | `backend.generate` |
| `--disaggregation-mode prefill` | prefill | `prefill.generate` |
| `--embedding-worker` | embedding | `backend.generate` |
| `--enable-multimodal --disaggregation-mode encode` | multimodal encode | `encode.generate` |
| `--enable-multimodal`, alone or with `pd` | native multimodal | `backend.generate` |
| `--enable-multimodal --disaggregation-mode decode` | native multimodal decode | \
`backend.generate` |
| `--enable-multimodal --disaggregation-mode prefill` | native multimodal prefill | \
`prefill.generate` |
| `--enable-multimodal --dedicated-mm-encoder --disaggregation-mode pd` | internal multimodal | \
`backend.generate` |
| the same with `decode` | internal multimodal decode | `backend.generate` |
| the same with `prefill` | internal multimodal prefill | `prefill.generate` |
| `--image-diffusion-worker` | image diffusion | `backend.generate` |
| `--video-generation-worker` | video generation | `backend.generate` |
| `--dllm-algorithm NAME` | LLM diffusion | `backend.generate` |

Two flags that choose different types are an error that names both. The endpoint is
`dyn://<namespace>.<component>.generate`; `--endpoint` replaces it, `DYN_NAMESPACE_WORKER_SUFFIX`
is added to the namespace. A type that this version does not serve yet is refused by name."""

COMBINATIONS = """\
## Combinations that are refused

- `--reasoning-parser` with `--dyn-reasoning-parser`, `--tool-call-parser` with
  `--dyn-tool-call-parser` (or their variables): one parser of each kind.
- `--disagg-config` without `--disagg-config-key`, and the reverse; `--disagg-config` with
  `--config`.
- `--custom-jinja-template` with `--use-sglang-tokenizer`, or a file that is not there.
- `--dedicated-mm-encoder` without `--enable-multimodal`; `--frontend-decoding` with
  `--dedicated-mm-encoder`.
- `--metadata-port` equal to `DYN_SYSTEM_PORT`, or taken when the worker starts; two routes with one
  path.
- A path in `--model-path`, `--tokenizer-path` or `--speculative-draft-model-path` that does not
  exist; a folder without config.json.
- A KDA model with FlashInfer verify (by `--linear-attn-verify-backend`, or followed from decode or
  base) and `--speculative-eagle-topk` above 1.
- A STANDALONE draft with a larger vocabulary than its target.
- `--gateway-workers` above 1 with anything but an aggregated worker, with LoRA adapters, data
  parallelism, several nodes, forward-pass metrics, tracing, `--skip-tokenizer-init`, or a route to
  a method that one of several processes cannot carry out
  ([gateway-workers.md](gateway-workers.md)).
- `--tokenizer-worker-num` other than 1 or the number of gateways.

## Disaggregation file

`--disagg-config FILE --disagg-config-key KEY` selects one section of a YAML file. Keys are SGLang's
flags, with `-` or `_`. The section is written to a temporary file of mode 0600, read by SGLang's
merger and deleted. `true` is the bare flag, `false` and `null` omit it, a list repeats the value, a
mapping is passed as JSON; a flag of the command line wins. Flags of the worker and of Dynamo do not
belong in the file."""


def page() -> str:
    sections = [INTRO]
    for title, flags in GROUPS:
        sections.append(f"## {title}\n\n{_table(_OWN_HEAD, (_own_row(flag) for flag in flags))}")
    sections += [WORKER_TYPES, COMBINATIONS, _refused(), _dynamo()]
    return "\n\n".join(sections) + "\n"


_OWN_HEAD = ("flag", "variable", "default", "accepts", "meaning")


def _own_row(flag: OwnFlag) -> Sequence[str]:
    name = f"`{flag.name}`" if flag.name else ""
    if flag.name and flag.kind is Kind.SWITCH:
        name = f"`{flag.name}`, `--no-{flag.name[2:]}`"
    if flag.kind is Kind.ROUTES:
        name += " (repeatable)"
    accepted = accepted_words(flag)
    return (
        name,
        f"`{flag.variable}`" if flag.variable else "",
        default_words(flag),
        f"`{accepted}`" if accepted.startswith("<") else accepted,
        flag.help,
    )


def _refused() -> str:
    rows = (
        (
            f"`{entry.flag}`" if entry.flag else "",
            f"`{entry.variable}`" if entry.variable else "",
            entry.reason,
        )
        for entry in REFUSED
    )
    return (
        "## Refused by name\n\nFalse values of switches are harmless and accepted.\n\n"
        f"{_table(('flag', 'variable', 'reason'), rows)}"
    )


def _dynamo() -> str:
    declared = dynamo_flags.declare_runtime()
    return (
        "## Dynamo's runtime flags\n\nDeclared by `dynamo.common.configuration`; meaning as in "
        "Dynamo's documentation. The router flags of a model card (`--router-mode` and those that "
        "go with it) are accepted too.\n\n"
        f"{_table(('flag', 'variable'), _dynamo_rows(declared.parser, declared.variables))}"
    )


def _dynamo_rows(parser: StrictParser, variables: Mapping[str, str]) -> Iterable[Sequence[str]]:
    for action in parser._actions:
        if action.help != "==SUPPRESS==":
            yield f"`{action.option_strings[0]}`", f"`{variables[action.dest]}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


if __name__ == "__main__":
    print(page(), end="")
