"""One piece of work in a thread of its own; the page asks whether it is done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from hydiff.errors import HydiffError

T = TypeVar("T")


class PageWork(Generic[T]):
    """A function in a thread of its own: its value, or the message of its error."""

    def __init__(self, function: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error: str | None = None
        self._function = function
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def stop(self) -> None:
        """Most work ends when it is done."""

    def _run(self) -> None:
        try:
            self.value = self._function()
        except HydiffError as error:
            self.error = str(error)
        except Exception as error:  # the page must say something; the log says where
            logging.getLogger(__name__).exception("work beside the page failed")
            self.error = f"{type(error).__name__}: {error}"
