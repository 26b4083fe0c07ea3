# SPDX-License-Identifier: Apache-2.0
"""Locks for asyncio. What blocks runs on a thread of its own, so that waits do not use up the loop's few."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable, Optional, Type, TypeVar, Union

from ._client import Receipt
from ._lock import AS_MADE, Lock
from ._transport import Abort

T = TypeVar("T")


async def _on_thread(work: Callable[[], T]) -> T:
    """Return what work returns. Where the task is cancelled, work goes on."""
    loop = asyncio.get_running_loop()
    future: "asyncio.Future[T]" = loop.create_future()

    def finish(set_it: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_it(value)

    def post(set_it: Callable[[Any], None], value: Any) -> None:
        try:
            loop.call_soon_threadsafe(finish, set_it, value)
        except RuntimeError:
            pass  # the loop is closed: no task waits

    def run() -> None:
        try:
            value = work()
        except BaseException as e:
            post(future.set_exception, e)
        else:
            post(future.set_result, value)

    threading.Thread(target=run, name="holdfast asyncio", daemon=True).start()
    return await future


class AsyncLock:
    """A Lock for asyncio; it takes the same arguments:

        async with AsyncLock("reports/nightly") as lock:
            await lock.append("reports/nightly.log", b"one line\\n")
    """

    def __init__(self, name: str, **options: Any) -> None:
        #: The lock beneath. What does not block is asked there: held, token, remaining, check.
        self.lock = Lock(name, **options)

    @property
    def held(self) -> bool:
        """Whether the lock is certainly held now."""
        return self.lock.held

    @property
    def token(self) -> int:
        """The fencing token."""
        return self.lock.token

    async def acquire(self, wait: Optional[float] = AS_MADE) -> "AsyncLock":
        """Acquire the lock as Lock.acquire does. Where the task is cancelled, the wait ends, and what was granted meanwhile is released."""
        abort = Abort()
        mutex = threading.Lock()
        given_up = False

        def work() -> None:
            self.lock.acquire(wait, abort=abort)
            with mutex:
                unwanted = given_up
            if unwanted:
                self.lock.release()

        try:
            await _on_thread(work)
        except asyncio.CancelledError:
            with mutex:
                given_up = True
            abort.set()
            if self.lock.held:  # it was granted, and the task did not hear of it
                await asyncio.shield(_on_thread(self.lock.release))
            raise
        return self

    async def release(self) -> None:
        await _on_thread(self.lock.release)

    async def done(self) -> None:
        """Release the lock, and mark the slot of once as done, as Lock.done does."""
        await _on_thread(self.lock.done)

    async def append(self, file: str, data: Union[bytes, str], **options: Any) -> Receipt:
        """Append to a protected file exactly once, as Lock.append does."""
        return await _on_thread(lambda: self.lock.append(file, data, **options))

    async def wait_lost(self, timeout: Optional[float] = None) -> bool:
        """Wait until the lock is lost or released, and report whether it is."""
        return await _on_thread(lambda: self.lock.wait_lost(timeout))

    async def __aenter__(self) -> "AsyncLock":
        return await self.acquire()

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Any) -> None:
        await _on_thread(lambda: self.lock.__exit__(kind, error, trace))
