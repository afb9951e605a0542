"""How often expected waits are right: `python -m benchmarks.waits`, or `--from FILE` of recorded jobs.

The first half of the jobs is the history by which the waits of the second half are expected when their jobs arrive, and
compared with what the replay then does. Jobs that arrive later and come first, or preempt, make an expectation wrong.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

from benchmarks.measuring import arguments, write
from benchmarks.replay import jobs
from gpu_tenancy.base.quantity import is_extended
from gpu_tenancy.inspect.estimate import ENDS, HIGH, LOW, History
from gpu_tenancy.kueue import Simulation, Tenancy, Workload
from gpu_tenancy.kueue.replay import Replay, ReplayedJob
from gpu_tenancy.kueue.waiting import Lasts, waits
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.queues import tenancy
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import project_folder, read_stack
from gpu_tenancy.simulation.replay import Trace, arrivals_of

_MILLI: Final = 1000


class Watch:
    """Expects the wait of each pending job that arrives in the second half, and compares.

    Attributes:
        found: how many waits were `within` the expectation, `shorter`, `longer`, and how many `unknown`.
    """

    def __init__(self, of: Tenancy, history: History, first: int, every: int) -> None:
        self.found: Counter[str] = Counter()
        self._tenancy, self._history, self._first, self._every = of, history, first, every
        self._jobs: dict[str, ReplayedJob] = {}
        self._expected: dict[str, tuple[float, float] | None] = {}
        self._arrived = 0
        self._now = 0

    def arrived(self, job: ReplayedJob, now: int) -> None:
        """Of `Observer`."""
        self._now, name = now, job.arrival.workload.name
        self._jobs[name] = job
        self._arrived += 1
        if self._arrived > self._first and self._arrived % self._every == 0:
            self._expect(name)

    def started(self, job: ReplayedJob, now: int) -> None:
        """Of `Observer`."""
        name = job.arrival.workload.name
        if name not in self._expected:
            return
        span, waited = self._expected.pop(name), (now - job.arrival.at) / _MILLI
        if span is None:
            self.found["unknown"] += 1
        else:
            self.found["shorter" if waited < span[0] else "longer" if waited > span[1] else "within"] += 1

    def stopped(self, job: ReplayedJob, now: int, by: ReplayedJob | None) -> None:  # noqa: ARG002 - of the protocol
        """Of `Observer`."""
        if by is None:
            del self._jobs[job.arrival.workload.name]

    def _expect(self, name: str) -> None:
        simulation = Simulation(self._tenancy)
        for other in self._jobs.values():
            if other.running_since is None:
                simulation.submit(other.arrival.workload)
            else:
                since = (other.running_since - self._now) // _MILLI - 1
                simulation.place(other.arrival.workload, other.info.flavors, since)
        if simulation.rest() or all(pending.name != name for pending in simulation.settled().pending):
            return
        fork = simulation.fork()
        low, high = (
            waits(fork(), self._lasts(share, 1), self._lasts(share, 0), most=ENDS, until=name)[0].get(name)
            for share in (LOW, HIGH)
        )
        self._expected[name] = None if high is None else (min(high, high if low is None else low), high)

    def _lasts(self, share: float, ran: int) -> Lasts:
        def lasts(name: str) -> float | None:
            job = self._jobs[name]
            since = (self._now - (job.running_since or self._now)) / _MILLI * ran
            return self._history.left(job.arrival.workload.queue, _gpus(job.arrival.workload), since, share)

        return lasts


def _gpus(workload: Workload) -> int:
    return sum(
        pods.count * amount
        for pods in workload.pod_sets
        for resource, amount in pods.requests.items()
        if is_extended(resource)
    )


def measured(tree: Tree, file: Path, every: int) -> Counter[str]:
    """How many of the waits that were expected are right; one job of so many is expected."""
    arrivals = list(arrivals_of(tree, Trace(file)))
    half = len(arrivals) // 2
    past = ((one.workload.queue, _gpus(one.workload), one.duration / _MILLI) for one in arrivals[:half])
    watch = Watch(tenancy(tree), History.of(past), half, every)
    Replay(tenancy(tree), watch).play(arrivals)
    return watch.found


def main() -> None:
    """Measures and prints."""
    parser = arguments(__doc__)
    parser.add_argument("--stack", default="local")
    parser.add_argument("--from", dest="file", type=Path)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=5)
    asked = parser.parse_args()
    tree = Tree(load(read_stack(asked.stack, project_folder(None))))
    with tempfile.TemporaryDirectory() as folder:
        file = asked.file or Path(folder) / "jobs.jsonl"
        if not asked.file:
            file.write_text("\n".join(jobs(asked.jobs)) + "\n", encoding="utf-8")
        found = measured(tree, file, asked.every)
    total = max(1, found.total())
    for name, count in found.most_common():
        sys.stdout.write(f"{name:>8} {count:>6,} {100 * count / total:5.1f} %\n")
    write(asked.json, dict(found))


if __name__ == "__main__":
    main()
