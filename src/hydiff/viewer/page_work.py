"""A piece of work that runs in its own thread; the page polls whether it is done."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from hydiff.errors import HydiffError

T = TypeVar("T")


class PageWork(Generic[T]):
    """Runs a function in its own thread, and keeps its value or the message of its error."""

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
        """Wait until the work is done, at most this long; None waits without limit."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Do nothing; subclasses that can be stopped override this."""

    def _run(self) -> None:
        try:
            self.value = self._function()
        except HydiffError as error:
            self.error = str(error)
        except Exception as error:  # the page shows a message, the log has the traceback
            logging.getLogger(__name__).exception("work beside the page failed")
            self.error = f"{type(error).__name__}: {error}"
