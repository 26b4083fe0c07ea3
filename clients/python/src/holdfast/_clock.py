# SPDX-License-Identifier: Apache-2.0
"""The clock of leases, and for how long a lease certainly lasts."""

from __future__ import annotations

import sys
import time
from typing import Callable, Optional

Clock = Callable[[], float]


def _best_clock() -> Clock:
    """Return a clock in seconds that never goes back, and runs while the machine sleeps.

    The time of day is no such clock: operators and NTP set it.
    """
    if sys.platform == "win32":
        return time.monotonic
    name = "CLOCK_MONOTONIC" if sys.platform == "darwin" else "CLOCK_BOOTTIME"
    which: Optional[int] = getattr(time, name, None)
    if which is None:
        return time.monotonic
    clock: int = which
    return lambda: time.clock_gettime(clock)


#: Read this, and nothing else, for everything that has to do with leases.
now: Clock = _best_clock()


def margin(ttl: float) -> float:
    """Return by how much the clocks of client and service may differ over a lease: 1 % and 10 ms."""
    return ttl / 100 + 0.010


class Lease:
    """For how long a lock is certainly held, counted from when the answered question was sent.

    The service counts from a later moment, so this side gives up first. The clock is an argument
    of every method: that makes them pure. A Lease is guarded by its owner's mutex.
    """

    def __init__(self, ttl: float, sent: float, left: float) -> None:
        self.ttl = ttl
        self.deadline = sent + left - margin(left)
        self.half = sent + left / 2

    def extend(self, sent: float, left: float) -> None:
        """Count left from sent. The answer to an older question never shortens the lease."""
        self.deadline = max(self.deadline, sent + left - margin(left))
        self.half = max(self.half, sent + left / 2)

    def over(self, at: float) -> bool:
        """Report whether the lease can no longer be relied on."""
        return at >= self.deadline

    def in_jeopardy(self, at: float) -> bool:
        """Report whether half of the lease has passed since an answered renewal was sent."""
        return at >= self.half

    def left(self, at: float) -> float:
        """Return for how many seconds more the lock is certainly held."""
        return max(0.0, self.deadline - at)
