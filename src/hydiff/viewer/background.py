"""Jobs of a page that run in the background, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import panel as pn

from hydiff.viewer.page_state import PageState, explained
from hydiff.viewer.page_work import PageWork

TICK = 300  # ms between two checks of the running job


class PageJob(NamedTuple):
    """A job, and the functions that start it, watch it and use its result."""

    name: str
    begin: Callable[[], PageWork[Any]]
    answer: Callable[[Any], None]  # called with the work when it has ended
    watch: Callable[[Any], None] = lambda work: None  # called while it runs


class Queue:
    """The jobs of a page; the first one is running."""

    def __init__(self, desk: PageState) -> None:
        self.desk = desk
        self.jobs: list[PageJob] = []
        self.work: PageWork[Any] | None = None
        self.ticker: Any = None

    def add(self, job: PageJob) -> None:
        """Append a job, and start it if no other is running."""
        self.jobs.append(job)
        if self.work is None:
            self.begin()
        self.say()

    def begin(self) -> None:
        """Start the first job, and check it regularly."""
        self.work = self.jobs[0].begin()
        self.ticker = pn.state.add_periodic_callback(self.look, period=TICK)

    @explained
    def look(self) -> None:
        """If the first job is done, start the next one and use the result; else watch it."""
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
        """Show the running and the waiting jobs; state: progress of the running one."""
        names = [job.name for job in self.jobs]
        waiting = f" Next: {', '.join(names[1:])}." if len(names) > 1 else ""
        self.desk.busy(f"{state or names[0]} …{waiting}" if names else "")

    def end(self) -> None:
        """Drop the waiting jobs and stop the running one, as their page is no longer shown."""
        self.jobs = self.jobs[:1]
        if self.work is not None:
            self.work.stop()
