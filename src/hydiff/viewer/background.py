"""The jobs of a page, done beside it one after the other: what is asked for meanwhile waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import panel as pn

from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.page_work import PageWork

TICK = 300  # ms between two looks at what is done


class PageJob(NamedTuple):
    """Something to do, and what follows from it."""

    name: str
    begin: Callable[[], PageWork[Any]]
    answer: Callable[[Any], None]  # to the work, when it has ended
    watch: Callable[[Any], None] = lambda work: None  # while it runs


class Queue:
    """The jobs of a page; the first one is at work."""

    def __init__(self, desk: PageState) -> None:
        self.desk = desk
        self.jobs: list[PageJob] = []
        self.work: PageWork[Any] | None = None
        self.ticker: Any = None

    def add(self, job: PageJob) -> None:
        self.jobs.append(job)
        if self.work is None:
            self.begin()
        self.say()

    def begin(self) -> None:
        self.work = self.jobs[0].begin()
        self.ticker = pn.state.add_periodic_callback(self.look, period=TICK)

    @explained
    def look(self) -> None:
        """Is it done?  Then answer, and begin the next."""
        if self.work is None:
            return
        if self.work.running:
            self.jobs[0].watch(self.work)
            return
        self.ticker.stop()
        job, work, self.work = self.jobs.pop(0), self.work, None
        if self.jobs:
            self.begin()
        self.say()
        job.answer(work)

    def say(self, state: str | None = None) -> None:
        """What is at work, and what waits; state: how far the first one is."""
        names = [job.name for job in self.jobs]
        waiting = f" Next: {', '.join(names[1:])}." if len(names) > 1 else ""
        self.desk.busy(f"{state or names[0]} …{waiting}" if names else "")

    def end(self) -> None:
        """Nobody waits for any of it."""
        self.jobs = self.jobs[:1]
        if self.work is not None:
            self.work.stop()
