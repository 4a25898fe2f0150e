"""How far the reading of a folder is: pages done, pages a minute, time left."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from fedpriv.data.document import DataError
from fedpriv.runtime.terminal import visible
from fedpriv.runtime.versions import cores

A = TypeVar("A")
B = TypeVar("B")

QUIET = 2.0
"""Seconds before the first line: what is done by then needs no words."""

EVERY = 15.0
"""Seconds between two lines."""


@functools.cache
def tell(line: str) -> None:
    """Shows a line on standard error, each line once in a process."""
    print(visible(line), file=sys.stderr, flush=True)


class Count:
    """Counts pages and tells how fast they come.

    Args:
        total: pages in all.
        what: such as "pages read by Tesseract".
        first: pages after which the rate is told.
        show: shows a line.
        clock: seconds.
    """

    def __init__(
        self,
        total: int,
        what: str,
        first: int,
        show: Callable[[str], None] = tell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.what, self.first, self.show, self.clock = total, what, first, show, clock
        self.done = 0
        self.began = self.said = clock()
        self._lock = threading.Lock()

    def add(self) -> None:
        """Counts a page."""
        with self._lock:
            self.done += 1
            now = self.clock()
            if now - self.began < QUIET or self.done < self.first:
                return
            if self.said > self.began and now - self.said < EVERY and self.done < self.total:
                return
            self.said = now
            rate = self.done / (now - self.began)
            left = (self.total - self.done) / rate
            self.show(
                f"{self.done:,} of {self.total:,} {self.what}, {60 * rate:,.0f} a minute, "
                f"about {duration(left)} left"
            )


def duration(seconds: float) -> str:
    """Returns a time in words: "40 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def on_all_cores(
    function: Callable[[A], B], items: Sequence[A], count: Count
) -> Iterator[B | DataError]:
    """Yields the function's result for each item, in their order, or the `DataError` it raised.

    Threads are enough: the work is done by other programs, by decoders and by the disk.
    """

    def one(item: A) -> B | DataError:
        try:
            return function(item)
        except DataError as error:
            return error
        finally:
            count.add()

    pool = ThreadPoolExecutor(cores())
    try:
        yield from pool.map(one, items)
    finally:
        # After an interruption, what has not begun is not begun.
        pool.shutdown(wait=True, cancel_futures=True)
