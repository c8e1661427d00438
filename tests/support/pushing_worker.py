"""The stub worker as the real one serves: chunks are pushed from a thread, see `engine.egress`.

``python -m tests.support.pushing_worker --model-path DIR``; prints ``stalled N`` when the number of
streams whose reader stalls changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sglang_worker.engine.dynamo_compat import pushing
from sglang_worker.engine.egress import Crew, Egress

from tests.support.stub_worker import letters, parser, serve

LOOK_EVERY_S = 0.02


async def main(argv: Sequence[str] | None = None) -> None:
    options = parser().parse_args(argv)
    crew = Crew()

    async def tell(runtime: Any, endpoint: Any) -> None:
        told = 0
        while True:
            if (stalled := crew.stalled) != told:
                told = stalled
                print(f"stalled {stalled}", flush=True)
            await asyncio.sleep(LOOK_EVERY_S)

    await serve(options, pushing(letters(options), Egress(crew)), on_endpoint=tell)


if __name__ == "__main__":
    asyncio.run(main())
