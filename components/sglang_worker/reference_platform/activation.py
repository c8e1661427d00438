"""Decides whether this process runs on the CPU reference platform.

`activate` is the ``sglang.srt.platforms`` entry point: SGLang calls it in every process that
touches ``current_platform``, ours or not. It must stay cheap, must not import SGLang, and must
answer None on any machine that could have an accelerator: a slow pure-PyTorch engine must never
quietly stand in for a fast one.

The rule itself, `decide`, is a pure function of the environment and of `Signs`, the facts that
`read_signs` collected; tests fake both.
"""

from __future__ import annotations

import enum
import glob
import importlib.metadata
import logging
import os
from collections.abc import Iterable, Mapping

import msgspec

from sglang_worker.errors import ConfigError

logger = logging.getLogger(__name__)

VARIABLE = "DYN_SGL_REFERENCE_PLATFORM"
ENTRY_POINT_GROUP = "sglang.srt.platforms"
ENTRY_POINT_NAME = "sglang_worker_reference_cpu"
PLATFORM_CLASS = "sglang_worker.reference_platform.platform.ReferenceCpuPlatform"

_DEVICE_NODE_PATTERNS = ("/dev/nvidia*", "/dev/kfd", "/dev/dri")
_NO_DEVICES = frozenset({"", "void", "none"})
_KERNEL_DISTRIBUTIONS = (
    "flashinfer-python",
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "sglang-kernel",
    "sgl-kernel",
)


class Mode(str, enum.Enum):
    """What the operator asked for in ``DYN_SGL_REFERENCE_PLATFORM``."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


_SPELLINGS: Mapping[str, Mode] = {
    "": Mode.AUTO,
    "auto": Mode.AUTO,
    **dict.fromkeys(("on", "1", "true", "yes"), Mode.ON),
    **dict.fromkeys(("off", "0", "false", "no"), Mode.OFF),
}


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the machine and the installation that hint at an accelerator."""

    device_nodes: tuple[str, ...] = ()
    kernel_distributions: tuple[str, ...] = ()
    other_platforms: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict and the one sentence that explains it to an operator."""

    active: bool
    reason: str


def parse_mode(value: str) -> Mode:
    """Reads the variable's value; raises ConfigError naming the variable."""
    try:
        return _SPELLINGS[value.strip().lower()]
    except KeyError:
        raise ConfigError(f"{VARIABLE}={value!r} is not one of auto, on, off") from None


def decide(environ: Mapping[str, str], signs: Signs) -> Decision:
    """Whether the reference platform is active; pure.

    `on` overrides hints at hardware, never another explicit choice: two active platforms are an
    error in SGLang, and its own CPU engine needs kernels of its own.
    """
    mode = parse_mode(environ.get(VARIABLE, ""))
    if mode is Mode.OFF:
        return Decision(active=False, reason=f"{VARIABLE} is off")
    chosen = environ.get("SGLANG_PLATFORM", "")
    if chosen == ENTRY_POINT_NAME:
        return Decision(active=True, reason=f"SGLANG_PLATFORM={chosen}")
    if chosen:
        return Decision(active=False, reason=f"SGLANG_PLATFORM={chosen} selects another platform")
    if environ.get("SGLANG_USE_CPU_ENGINE"):
        return Decision(active=False, reason="SGLANG_USE_CPU_ENGINE chooses SGLang's own engine")
    if mode is Mode.ON:
        return Decision(active=True, reason=f"{VARIABLE} is on")
    objection = _objection(environ, signs)
    if objection is not None:
        return Decision(active=False, reason=objection)
    return Decision(active=True, reason="no sign of an accelerator")


def _objection(environ: Mapping[str, str], signs: Signs) -> str | None:
    """The first reason why `auto` keeps out of the way, or None."""
    if signs.other_platforms:
        return f"another SGLang platform is installed: {', '.join(signs.other_platforms)}"
    if signs.device_nodes:
        return f"accelerator device nodes exist: {', '.join(signs.device_nodes)}"
    visible = environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible.strip().lower() not in _NO_DEVICES:
        return f"NVIDIA_VISIBLE_DEVICES={visible} hints at a GPU"
    if signs.kernel_distributions:
        return f"GPU kernel packages are installed: {', '.join(signs.kernel_distributions)}"
    return None


def read_signs() -> Signs:
    """Looks at /dev and at the installed distributions; imports nothing."""
    nodes = sorted(node for pattern in _DEVICE_NODE_PATTERNS for node in glob.glob(pattern))
    platforms = (
        entry.name
        for entry in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
        if entry.name != ENTRY_POINT_NAME
    )
    return Signs(
        device_nodes=tuple(nodes),
        kernel_distributions=tuple(_installed_kernel_packages()),
        other_platforms=tuple(sorted(set(platforms))),
    )


def _installed_kernel_packages() -> Iterable[str]:
    for name in _KERNEL_DISTRIBUTIONS:
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        yield name


def current_decision() -> Decision:
    """`decide` for this process and this machine."""
    return decide(os.environ, read_signs())


def activate() -> str | None:
    """SGLang's entry point: the platform's dotted class path, or None to stay out."""
    try:
        decision = current_decision()
    except ConfigError as error:
        logger.error("CPU reference platform stays off: %s", error)
        return None
    if not decision.active:
        logger.debug("CPU reference platform not used: %s", decision.reason)
        return None
    logger.warning(
        "SGLang runs on the CPU reference platform (pure PyTorch, slow): %s; "
        "set %s=off to refuse it",
        decision.reason,
        VARIABLE,
    )
    return PLATFORM_CLASS
