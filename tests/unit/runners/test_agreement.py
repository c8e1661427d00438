from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.runners.agreement import KernelName, compare
from sglang_worker.runners.families import Family, family_of_backend
from sglang_worker.runners.report import Difference, Reason, Stamp

TRITON, FLASHINFER, CUTEDSL = "TritonGDNKernel", "FlashInferGDNKernel", "CuteDSLGDNKernel"


def gdn(decode: str, prefill: str, verify: str, tree: str = TRITON) -> dict[str, KernelName]:
    names = {"decode": decode, "prefill": prefill, "verify": verify, "tree_verify": tree}
    return {phase: KernelName(name) for phase, name in names.items()}


def judge(stamp: Stamp | None, kernels: Any, family: Family = Family.GDN, tree: bool = False):
    return compare(family, stamp, kernels, tree_drafts=tree)


def test_kernels_of_the_stamped_backends_agree() -> None:
    verdict = judge(Stamp("triton", "flashinfer", "triton"), gdn(TRITON, FLASHINFER, TRITON))
    assert verdict.agrees is True
    assert verdict.differences == ()


def test_cute_dsl_prefill_off_its_device_runs_triton_and_is_named() -> None:
    verdict = judge(Stamp("cutedsl", "cutedsl", "triton"), gdn(CUTEDSL, TRITON, TRITON))
    assert verdict.agrees is False
    assert verdict.differences == (
        Difference("prefill", "cutedsl", TRITON, Reason.UNSUPPORTED_ON_DEVICE),
    )


@pytest.mark.parametrize(
    ("stamped", "runs"), [("cutedsl", FLASHINFER), ("cutedsl", TRITON), ("flashinfer", TRITON)]
)
def test_a_verify_choice_that_gdn_does_not_offer_is_named(stamped: str, runs: str) -> None:
    verdict = judge(Stamp("triton", "triton", stamped), gdn(TRITON, TRITON, runs))
    assert verdict.agrees is False
    assert verdict.differences[0].reason is Reason.UNSUPPORTED_ON_DEVICE


def test_tree_verify_counts_only_when_drafts_are_trees() -> None:
    stamp = Stamp("flashinfer", "flashinfer", "flashinfer")
    kernels = gdn(FLASHINFER, FLASHINFER, FLASHINFER)
    assert judge(stamp, kernels).agrees is True
    verdict = judge(stamp, kernels, tree=True)
    assert verdict.agrees is False
    assert verdict.differences == (
        Difference("tree_verify", "flashinfer", TRITON, Reason.TREE_VERIFY_TRITON),
    )


def test_a_stamp_that_nothing_uses_neither_agrees_nor_disagrees() -> None:
    verdict = judge(Stamp("triton", "flashinfer", "triton"), None)
    assert verdict.agrees is None
    assert verdict.differences == (Difference("all", None, None, Reason.NO_BACKEND),)


def test_a_runner_without_stamp_and_backend_has_nothing_to_differ() -> None:
    verdict = compare(None, None, None, tree_drafts=False)
    assert verdict.agrees is None
    assert verdict.differences == ()


def test_an_unknown_kernel_class_is_never_agreement() -> None:
    verdict = judge(Stamp("triton", "triton", "triton"), gdn("NewKernel", TRITON, TRITON))
    assert verdict.agrees is None
    assert verdict.differences[0].reason is Reason.UNKNOWN


def test_a_known_difference_outweighs_an_unknown_class() -> None:
    verdict = judge(Stamp("cutedsl", "cutedsl", "triton"), gdn("NewKernel", TRITON, TRITON))
    assert verdict.agrees is False


def test_a_custom_stamp_never_agrees_with_an_unknown_class() -> None:
    verdict = judge(Stamp("custom", "triton", "triton"), gdn("MyKernel", TRITON, TRITON))
    assert verdict.agrees is None


@pytest.mark.parametrize("family", [Family.LIGHTNING, Family.MAMBA2, Family.SHORT_CONV])
def test_backends_that_read_no_stamp_say_so(family: Family) -> None:
    verdict = judge(Stamp("triton", "triton", "triton"), {"backend": KernelName("B")}, family)
    assert verdict.agrees is None
    assert verdict.differences == (Difference("all", None, "B", Reason.BACKEND_READS_NO_STAMP),)


def test_the_reference_platforms_kernels_are_recognised_by_their_package() -> None:
    name = KernelName("ReferenceGDNKernel", "sglang_worker.reference_platform.kernels")
    verdict = judge(Stamp("triton", "triton", "triton"), dict.fromkeys(("decode",), name))
    assert verdict.agrees is False
    assert verdict.differences[0].reason is Reason.REFERENCE_PLATFORM


def test_kdas_fused_decode_bypasses_the_stamp_and_is_named() -> None:
    kernels = {
        **dict.fromkeys(("decode", "prefill", "verify"), KernelName("TritonKDAKernel")),
        "fused_decode": KernelName("kda_fused_decode"),
    }
    verdict = judge(Stamp("triton", "triton", "triton"), kernels, Family.KDA)
    assert verdict.agrees is None
    assert verdict.differences == (
        Difference("fused_decode", "triton", "kda_fused_decode", Reason.FUSED_KERNEL),
    )


def test_kdas_dense_verify_choice_shows_the_fused_kernel_as_reason() -> None:
    kernels = dict.fromkeys(("decode", "prefill", "verify"), KernelName("TritonKDAKernel"))
    verdict = judge(Stamp("triton", "triton", "nv_cutedsl"), kernels, Family.KDA)
    assert verdict.differences[0].reason is Reason.FUSED_KERNEL
    assert verdict.agrees is False


def test_kdas_fused_chain_verify_is_tritons() -> None:
    kernels = {
        **dict.fromkeys(("decode", "prefill", "verify"), KernelName("TritonKDAKernel")),
        "fused_verify": KernelName("fused_kda_conv_gating_verify"),
    }
    assert judge(Stamp("triton", "triton", "triton"), kernels, Family.KDA).agrees is True


def test_a_subclass_belongs_to_its_bases_family() -> None:
    assert family_of_backend(["XpuGDNAttnBackend", "GDNAttnBackend"]) is Family.GDN
    assert family_of_backend(["TritonAttnBackend", "object"]) is None
