"""A bare `sgl.Engine` with a worker's flags, in a process of its own: asked once, then gone.

``python -m benchmarks.worker_types.bare TASK.json ANSWERS.json``: the task names SGLang's flags
and the calls, one answer is written for each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows.processes import RowProcess
from benchmarks.gpu_rows.results import write_whole
from tests.support.ports import free_port

Call = dict[str, Any]
TAIL_BYTES, SHORT_TAIL_BYTES = 5000, 1200


class BareEngine:
    """The parent's side. It starts at once, beside the worker."""

    def __init__(
        self,
        folder: Path,
        flags: Sequence[str],
        calls: Sequence[Call],
        environ: Mapping[str, str],
    ) -> None:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        self._answers = folder / "bare-answers.json"
        task = folder / "bare-task.json"
        ports = ("--port", str(free_port()), "--nccl-port", str(free_port()))
        write_whole(task, {"flags": [*flags, *ports], "calls": list(calls)})
        command = [sys.executable, "-m", __name__, str(task), str(self._answers)]
        self._process = RowProcess(command, folder / "logs" / "bare.log", environ)

    def answers(self, limit_s: float) -> list[Any]:
        """Raises RuntimeError with the end of its log when it has not answered everything."""
        ended = self._process.wait(limit_s)
        if not self._answers.exists():
            tail = self._process.log_tail(SHORT_TAIL_BYTES)
            raise RuntimeError(f"the bare engine gave no answers, exit {ended}: {tail}")
        found: list[Any] = json.loads(self._answers.read_text())
        return found

    def outcome(self, limit_s: float) -> dict[str, str]:
        """Where the worker failed: whether the engine alone would have answered, and its log."""
        try:
            found = f"gave {len(self.answers(limit_s))} answers"
        except RuntimeError:
            found = "gave none"
        return {"bare": found, "bare_log": self._process.log_tail(TAIL_BYTES)}

    def end(self) -> None:
        self._process.end()


def embed(engine: Any, arguments: Call) -> list[list[float]]:
    """``text`` or ``input_ids``, a list; ``dimensions``."""
    from sglang.srt.managers.io_struct import EmbeddingReqInput

    asked = engine.tokenizer_manager.generate_request(EmbeddingReqInput(**arguments), None)
    found = engine.loop.run_until_complete(anext(asked))
    return [one["embedding"] for one in found]


def complete(engine: Any, arguments: Call) -> dict[str, Any]:
    """Prompt in, text out; greedy."""
    found = engine.generate(prompt=arguments["prompt"], sampling_params=_greedy(arguments))
    return {"text": found["text"], **_counts(found)}


def chat(engine: Any, arguments: Call) -> dict[str, Any]:
    """Messages in, an `agreement.Answer` out."""
    tokenizer = engine.tokenizer_manager.tokenizer
    messages = arguments["messages"]
    found = engine.generate(
        prompt=tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True),
        image_data=_image_urls(messages) or None,
        sampling_params=_greedy(arguments),
        return_logprob=True,
        top_logprobs_num=2,
    )
    meta = found["meta_info"]
    tokens = []
    for (logprob, token, _), top in zip(
        meta["output_token_logprobs"], meta["output_top_logprobs"], strict=True
    ):
        best = sorted((one[0] for one in top), reverse=True)
        # As the frontend writes it.
        text = tokenizer.decode([token], skip_special_tokens=True)
        tokens.append((text, logprob, best[0] - best[1]))
    return {"prompt_tokens": meta["prompt_tokens"], "tokens": tokens}


def _greedy(arguments: Call) -> dict[str, Any]:
    tokens = arguments["max_tokens"]
    return {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}


def _counts(found: Mapping[str, Any]) -> dict[str, int]:
    names = ("prompt_tokens", "completion_tokens")
    return {name: found["meta_info"][name] for name in names}


def _image_urls(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = [part for message in messages for part in message["content"]]
    return [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]


METHODS: dict[str, Callable[[Any, Call], Any]] = {
    "embed": embed,
    "complete": complete,
    "chat": chat,
}


def main() -> None:
    import sglang
    from sglang.srt.server_args import prepare_server_args

    task = json.loads(Path(sys.argv[1]).read_text())
    engine = sglang.Engine(server_args=prepare_server_args(task["flags"]))
    answers = [METHODS[call["method"]](engine, call["arguments"]) for call in task["calls"]]
    write_whole(Path(sys.argv[2]), answers)
    engine.shutdown()


if __name__ == "__main__":
    main()
