"""SGLang flags that a worker type would ignore or misread are refused, naming both flags."""

from __future__ import annotations

import pytest
from sglang_worker.config.type_rules import REFUSED

from tests.unit.config.support import late_refusal, parse

DLLM = ("--dllm-algorithm", "LowConfidence")
NGRAM = ("--speculative-algorithm", "NGRAM")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--embedding-worker", *NGRAM), ("--speculative-algorithm", "--embedding-worker")),
        (("--embedding-worker", "--enable-lora"), ("--enable-lora", "--embedding-worker")),
        (("--embedding-worker", "--lora-paths", "a=/b"), ("--lora-paths",)),
        (("--embedding-worker", "--dyn-tool-call-parser", "hermes"), ("--dyn-tool-call-parser",)),
        (("--embedding-worker", "--endpoint-types", "chat"), ("--endpoint-types",)),
        ((*DLLM, *NGRAM), ("--speculative-algorithm", "--dllm-algorithm")),
        ((*DLLM, "--enable-lora"), ("--enable-lora", "--dllm-algorithm")),
        ((*DLLM, "--pp-size", "2"), ("--pp-size", "--dllm-algorithm")),
        ((*DLLM, "--enable-mixed-chunk"), ("--enable-mixed-chunk", "--dllm-algorithm")),
        ((*DLLM, "--is-embedding"), ("--is-embedding", "--dllm-algorithm")),
        (("--is-embedding",), ("--is-embedding", "--embedding-worker")),
    ],
)
def test_a_flag_without_meaning_for_the_type_is_refused(
    flags: tuple[str, ...], named: tuple[str, ...]
) -> None:
    message = late_refusal(*flags)
    assert all(name in message for name in named), message


def test_the_variable_that_chose_the_type_is_named() -> None:
    message = late_refusal(*NGRAM, DYN_SGL_EMBEDDING_WORKER="1")
    assert "DYN_SGL_EMBEDDING_WORKER" in message
    message = late_refusal("--embedding-worker", DYN_REASONING_PARSER="qwen3")
    assert "DYN_REASONING_PARSER" in message


def test_harmless_values_pass() -> None:
    assert parse(*DLLM, "--pp-size", "1").worker_type in REFUSED
    config = parse("--embedding-worker", "--is-embedding")
    assert config.engine.explicit["is_embedding"] is True
