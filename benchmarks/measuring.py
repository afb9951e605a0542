"""What benchmarks have in common: their arguments, a watch, and the file of figures."""

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Watch:
    """Seconds on the wall and of processor time, of this process and of those that it waited for."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Watch":
        """The time at this moment."""
        return cls(time.perf_counter(), sum(os.times()[:4]))

    def since(self, before: "Watch") -> "Watch":
        """The time from another moment to this one."""
        return Watch(self.wall - before.wall, self.cpu - before.cpu)

    @classmethod
    def of(cls, work: Callable[[], object]) -> "Watch":
        """The time that some work takes."""
        before = cls.now()
        work()
        return cls.now().since(before)


def arguments(description: str | None, teams: int | None = None) -> argparse.ArgumentParser:
    """The arguments of a benchmark: `--teams`, with this default, and `--json`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--teams", type=int, default=teams, help="measure one size")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures, in seconds")
    return parser


def write(file: Path | None, figures: Any) -> None:
    """Writes figures as JSON, if a file is given."""
    if file:
        file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
