"""Ask a demo model every question of ``chats.txt`` on the real engine and count.

``python -m sglang_worker.demo.training.evaluate DIR/gdn [--nextn | --standalone DIR/dense]``
prints how many answers are the learned ones and the acceptance length. On a plain CPU set
``OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE TORCHDYNAMO_DISABLE=1``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sglang_worker.demo.training.corpus import read_chats

SPECULATION = {
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}
BATCH = 12


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    arguments: dict[str, Any] = {"model_path": str(options.model), "log_level": "error"}
    if options.nextn:
        arguments |= {"speculative_algorithm": "NEXTN", **SPECULATION}
    elif options.standalone:
        draft = {"speculative_draft_model_path": str(options.standalone)}
        arguments |= {"speculative_algorithm": "STANDALONE", **draft, **SPECULATION}
    return arguments


def evaluate(engine: Any) -> str:
    """Return one line: exact answers, tokens, and the mean acceptance length per token step."""
    pairs = [(question, chat.answer) for chat in read_chats() for question in chat.questions]
    exact = tokens = 0
    steps = 0.0
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        prompts = [
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            for question, _ in part
        ]
        outputs = engine.generate(prompts, {"temperature": 0, "max_new_tokens": 96})
        for (_, answer), output in zip(part, outputs, strict=True):
            meta = output["meta_info"]
            exact += output["text"] == answer
            tokens += meta["completion_tokens"]
            steps += meta["completion_tokens"] / (meta.get("spec_accept_length") or 1.0)
    return f"{exact} of {len(pairs)} exact, {tokens} tokens, acceptance length {tokens / steps:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--nextn", action="store_true")
    parser.add_argument("--standalone", type=Path)
    options = parser.parse_args()
    import sglang

    engine = sglang.Engine(**engine_arguments(options))
    try:
        print(evaluate(engine))
    finally:
        engine.shutdown()


if __name__ == "__main__":
    main()
