"""Compares a stamp with the kernels that were built: pure, from two tables.

The tables hold what SGLang 0.5.20 to 0.5.23 does; a class that is in neither gives "not known",
never agreement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from sglang_worker.runners.families import Family
from sglang_worker.runners.report import Difference, Reason, Stamp

REFERENCE_PACKAGE = "sglang_worker.reference_platform"
_REFERENCE = "reference"

_BACKEND_OF_KERNEL = {
    "TritonGDNKernel": "triton",
    "FlashInferGDNKernel": "flashinfer",
    "CuteDSLGDNKernel": "cutedsl",
    "TritonKDAKernel": "triton",
    "HelionKDAKernel": "helion",
    "CuteDSLKDAKernel": "cutedsl",
    "FlashInferKDAKernel": "flashinfer",
    "FlashInferKDAPrefillKernel": "flashinfer",
    "FlashKDAKernel": "flashkda",
    "NvidiaKDAKernel": "nvidia_kda",
    "PtxKDAKernel": "ptx_kda",
    "fused_kda_conv_gating_verify": "triton",
    "fused_kda_decode_mtp_dspark": "nv_cutedsl",
}

# (family, phase, stamped backend) -> why the dispatcher holds another kernel.
_EXPECTED_FALLBACKS = {
    (Family.GDN, "prefill", "cutedsl"): Reason.UNSUPPORTED_ON_DEVICE,
    (Family.GDN, "decode", "intel_xpu"): Reason.FUSED_KERNEL,
    (Family.GDN, "prefill", "intel_xpu"): Reason.FUSED_KERNEL,
    (Family.KDA, "prefill", "cutedsl"): Reason.UNSUPPORTED_ON_DEVICE,
    (Family.KDA, "prefill", "ptx_kda"): Reason.UNSUPPORTED_ON_DEVICE,
    (Family.KDA, "prefill", "nvidia_kda"): Reason.UNSUPPORTED_ON_DEVICE,
    (Family.KDA, "verify", "nv_cutedsl"): Reason.FUSED_KERNEL,
}
_FUSED_PHASES = {"fused_decode": "decode", "fused_verify": "verify"}


class KernelName(msgspec.Struct, frozen=True):
    """A kernel's class (or function) name and the module that defines it."""

    name: str
    module: str = ""

    @property
    def backend(self) -> str | None:
        """The backend name that a stamp would use for it; None when the class is unknown."""
        if self.module.startswith(REFERENCE_PACKAGE):
            return _REFERENCE
        return _BACKEND_OF_KERNEL.get(self.name)


class Agreement(msgspec.Struct, frozen=True):
    agrees: bool | None
    differences: tuple[Difference, ...] = ()


def compare(
    family: Family | None,
    stamp: Stamp | None,
    kernels: Mapping[str, KernelName] | None,
    *,
    tree_drafts: bool,
) -> Agreement:
    """Whether what was built is what was stamped.

    `kernels` is keyed as in the report (decode, prefill, verify, tree_verify, fused_*), or None
    when the runner built no linear-attention backend. `tree_drafts` says that drafts are trees
    (topk > 1): only then does tree_verify count.
    """
    if kernels is None:
        if stamp is None:
            return Agreement(agrees=None)
        return Agreement(None, (Difference("all", None, None, Reason.NO_BACKEND),))
    if family is None or not family.reads_stamp:
        name = next(iter(kernels.values())).name if kernels else None
        return Agreement(None, (Difference("all", None, name, Reason.BACKEND_READS_NO_STAMP),))
    if stamp is None:
        return Agreement(agrees=None)
    differences = tuple(_differences(family, stamp, kernels, tree_drafts))
    return Agreement(_verdict(kernels, differences, tree_drafts), differences)


def _verdict(
    kernels: Mapping[str, KernelName], differences: tuple[Difference, ...], tree_drafts: bool
) -> bool | None:
    known = {
        phase: kernel.backend for phase, kernel in kernels.items() if _counts(phase, tree_drafts)
    }
    if any(known.get(d.phase) is not None for d in differences):
        return False
    if any(backend is None for backend in known.values()):
        return None
    return not differences


def _counts(phase: str, tree_drafts: bool) -> bool:
    return phase != "tree_verify" or tree_drafts


def _differences(
    family: Family, stamp: Stamp, kernels: Mapping[str, KernelName], tree_drafts: bool
) -> Iterator[Difference]:
    for phase, kernel in kernels.items():
        if not _counts(phase, tree_drafts):
            continue
        stamped = _stamped(stamp, phase)
        if kernel.backend != stamped:
            yield Difference(phase, stamped, kernel.name, _reason(family, phase, stamped, kernel))


def _stamped(stamp: Stamp, phase: str) -> str:
    if phase == "tree_verify":
        return stamp.verify
    chosen: str = getattr(stamp, _FUSED_PHASES.get(phase, phase))
    return chosen


def _reason(family: Family, phase: str, stamped: str, kernel: KernelName) -> Reason:
    if kernel.backend == _REFERENCE:
        return Reason.REFERENCE_PLATFORM
    if phase in _FUSED_PHASES:
        return Reason.FUSED_KERNEL
    if kernel.backend is None:
        return Reason.UNKNOWN
    if phase == "tree_verify":
        return Reason.TREE_VERIFY_TRITON
    if family is Family.GDN and phase == "verify":
        # GDN verifies with FlashInfer only beside a FlashInfer decode or prefill kernel that
        # supports it on this device, and has no CuTe DSL verify at all.
        return Reason.UNSUPPORTED_ON_DEVICE
    return _EXPECTED_FALLBACKS.get((family, phase, stamped), Reason.UNKNOWN)
