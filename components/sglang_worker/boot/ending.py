"""The very end of the process: the port closes last, and the exit code stands.

The runtime's Rust threads take about a second to go when the interpreter tears itself down, and
have been seen to crash it then (FACTS section 4). By that time everything that matters is done:
exit handlers have run and the engine's processes are gone. So the last exit handler leaves at once.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable


class Ending:
    """``last`` is called after every other exit handler; ``code`` is then the exit code.

    Without a ``code`` (the process ends by an unexpected exception) the interpreter ends as usual.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.last: Callable[[], None] | None = None
        self._pid = 0

    def arm(self) -> None:
        """Before SGLang and the runtime are imported: exit handlers run in reverse order."""
        self._pid = os.getpid()
        atexit.register(self._finish)

    def _finish(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child inherited the registration
        if self.last is not None:
            self.last()
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)


ENDING = Ending()
"""The one of this process."""
