"""What is generated: sizes, steps and counts."""

from __future__ import annotations

from typing import Any

import msgspec


class Case(msgspec.Struct, frozen=True):
    kind: str
    side: tuple[int, int]
    steps: int
    outputs: int = 1
    frames: int = 1

    @property
    def name(self) -> str:
        width, height = self.side
        if self.kind == "image":
            return f"image {width}x{height}, {self.steps} steps, n {self.outputs}"
        return f"video {width}x{height}, {self.frames} frames, {self.steps} steps"

    def small(self) -> Case:
        """The same in seconds on a CPU."""
        frames = min(self.frames, 5)
        return msgspec.structs.replace(self, side=(64, 64), steps=min(self.steps, 3), frames=frames)

    def body(self, model: str, seed: int) -> dict[str, Any]:
        """The OpenAI request."""
        nvext: dict[str, Any] = {"num_inference_steps": self.steps, "seed": seed}
        body: dict[str, Any] = {
            "model": model,
            "prompt": "a lighthouse in a storm",
            "size": f"{self.side[0]}x{self.side[1]}",
            "nvext": nvext,
        }
        if self.kind == "image":
            return body | {"n": self.outputs}
        nvext |= {"num_frames": self.frames, "fps": 16}
        return body

    def fields(self, seed: int) -> dict[str, Any]:
        """The same for DiffGenerator.generate."""
        fields = {
            "prompt": "a lighthouse in a storm",
            "width": self.side[0],
            "height": self.side[1],
            "num_inference_steps": self.steps,
            "seed": seed,
            "num_outputs_per_prompt": self.outputs,
        }
        if self.kind == "video":
            return fields | {"num_frames": self.frames, "fps": 16}
        return fields | {"output_compression": 34}


CASES = (
    Case("image", (512, 512), 20),
    Case("image", (1024, 1024), 20),
    Case("image", (512, 512), 20, outputs=4),
    Case("video", (480, 272), 20, frames=17),
    Case("video", (832, 480), 20, frames=33),
)
