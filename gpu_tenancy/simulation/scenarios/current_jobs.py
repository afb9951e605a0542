"""Names of the jobs that exist at a step of a scenario."""

from collections.abc import Iterable
from typing import Any, cast

from gpu_tenancy.simulation.scenarios.scenario_form import MOST_JOBS


def names_of(name: str, count: int) -> list[str]:
    """The names of several jobs that are alike: `NAME-1`, `NAME-2`, …; of one job its name."""
    return [name] if count == 1 else [f"{name}-{number + 1}" for number in range(count)]


class CurrentJobs:
    """Names of jobs that have not ended; of several that are alike, also the name that they have in common."""

    def __init__(self) -> None:
        self._members: dict[str, list[str]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @property
    def names(self) -> Iterable[str]:
        """All names."""
        return self._members

    def add(self, raw: Any) -> None:
        """Records the names of submitted jobs, valid or not: a later step may end them."""
        if isinstance(raw, list):
            for item in cast("list[Any]", raw):
                self.add(item)
        if not isinstance(raw, dict):
            return
        keys = cast("dict[str, Any]", raw)
        name, count = keys.get("name"), keys.get("jobs", 1)
        if isinstance(name, str):
            names = names_of(name, count if isinstance(count, int) and 1 <= count <= MOST_JOBS else 1)
            self._members |= {name: names, **{member: [member] for member in names}}
        self.add(keys.get("submit"))

    def end(self, name: str) -> list[str]:
        """Removes a job, or all of several that are alike; returns those that were current, the newest first.

        So pending jobs usually end before running ones, and none of them is admitted just before it ends.
        """
        ended = [member for member in reversed(self._members.get(name, ())) if member in self._members]
        for member in (name, *ended):
            self._members.pop(member, None)
        # A common name is free when the last of its jobs has ended.
        self._members = {
            common: names for common, names in self._members.items() if any(each in self._members for each in names)
        }
        return ended
