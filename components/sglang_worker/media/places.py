"""How places are shared among accounts, and how slowly a download may go. Pure.

An account is whatever one party cannot have many of: an address, not a name.
"""

from __future__ import annotations

from collections import Counter


class Places:
    """A number of places of which no account gets all.

    While less than half are taken an account may hold up to half. Then it may hold half of those
    that are still free, and always one: accounts that came early find no more, and the last places
    are for accounts that have none.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self.free = total
        self._held: Counter[str] = Counter()

    @property
    def share(self) -> int:
        """How many places an account may hold after it took one more."""
        taken = self._total - self.free
        shared = self._total if 2 * taken < self._total else self.free
        return max(1, shared // 2)

    def held(self, account: str) -> int:
        return self._held[account]

    def has_room(self, account: str) -> bool:
        return self.free > 0 and self._held[account] < self.share

    def take(self, account: str) -> None:
        self.free -= 1
        self._held[account] += 1

    def give_back(self, account: str) -> None:
        self.free += 1
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]


class Pace:
    """The moment by which a download must have brought more, or is too slow.

    ``rate`` x ``window_s`` bytes must arrive within ``window_s`` each time; arriving earlier they
    begin the next window. Times are seconds of one clock.
    """

    def __init__(self, rate_bytes_per_s: int, window_s: float, now_s: float) -> None:
        self._quota_bytes = rate_bytes_per_s * window_s
        self._window_s = window_s
        self.restart(now_s)

    def restart(self, now_s: float) -> None:
        """The window begins anew."""
        self._missing_bytes = self._quota_bytes
        self.deadline_s = now_s + self._window_s

    def arrived(self, size_bytes: int, now_s: float) -> None:
        self._missing_bytes -= size_bytes
        if self._missing_bytes <= 0:
            self.restart(now_s)
