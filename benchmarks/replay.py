"""How long `tenancy replay` takes by the number of jobs, and how much memory: `python -m benchmarks.replay`.

Jobs arrive at random at nine tenths of what the guaranteed GPUs can do, so that some wait and none waits forever.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Final

from benchmarks.measuring import Watch, arguments, write
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import project_folder, read_stack

_STACK: Final = "local"
_SIZES: Final = (1, 1, 1, 1, 2, 2, 4, 8)
_HOUR: Final = 3600.0
_BUSY: Final = 0.9
_KIB: Final = 1024
_TENANCY: Final = str(Path(sys.executable).with_name("tenancy"))


def jobs(count: int) -> Iterator[str]:
    """Lines of recorded jobs, an hour long on average; without a team, so that they are dealt by guarantees."""
    dice = random.Random(1)  # noqa: S311 - no secret
    queues = tenancy(Tree(load(read_stack(_STACK, project_folder(None))))).queues
    lines = (line for queue in queues for group in queue.groups for line in group.flavors)
    gpus = sum(quota.nominal for line in lines for name, quota in line.resources.items() if is_extended(name))
    rate = gpus * _BUSY / (sum(_SIZES) / len(_SIZES) * _HOUR)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(count):
        at += timedelta(seconds=dice.expovariate(rate))
        duration = f"{dice.expovariate(1 / _HOUR):.0f}s"
        yield json.dumps({"at": at.isoformat(), "duration": duration, "gpus": dice.choice(_SIZES)})


def main() -> None:
    """Measures and prints."""
    parser = arguments(__doc__)
    parser.add_argument("--jobs", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    asked = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in asked.jobs:
            file = Path(folder) / f"{count}.jsonl"
            # Line by line: what this process has in memory counts as memory of the programs that it starts.
            with file.open("w", encoding="utf-8") as lines:
                lines.writelines(f"{job}\n" for job in jobs(count))
            command = [_TENANCY, "replay", _STACK, "--from", str(file)]
            took = Watch.of(lambda command=command: subprocess.run(command, capture_output=True, check=True))
            memory = getrusage(RUSAGE_CHILDREN).ru_maxrss // _KIB
            figures[str(count)] = took.cpu
            sys.stdout.write(f"{count:>9,} jobs {took.cpu:7.1f} s of processor time, {memory:,} MiB\n")
    write(asked.json, figures)


if __name__ == "__main__":
    main()
