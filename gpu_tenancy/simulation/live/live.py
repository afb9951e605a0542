"""A scenario of jobs on the embedded platform."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.simulation.live.copies import KUEUE, Place, copied, own_places
from gpu_tenancy.simulation.live.player import Happened, Player
from gpu_tenancy.simulation.scenarios import Event, JobStep, Moment, Tell

_CHART: Final = "kueue"
_WITHOUT: Final = "flavor {} has a topology, and the scenario is played without topologies"


class LivePlayer:
    """Plays a scenario on a live Kueue, with the events and states that the simulation has.

    Args:
        cluster: with the stack and Kueue.
        tree: of the stack.
        places: where the jobs of each queue are submitted.
    """

    def __init__(self, cluster: Cluster, tree: Tree, places: Mapping[str, Place]) -> None:
        self._player = Player(cluster, tree, places)
        self._queues: dict[str, str] = {}

    def play(self, step: JobStep, tell: Tell) -> Moment:
        """As for `gpu_tenancy.simulation.scenarios.Player`.

        Raises:
            WaitTimeoutError: Kueue does not settle.
            ApiError: the API server or a policy rejects a job.
        """
        self._queues |= {job.name: job.queue for job in step.submit}

        def heard(happened: Happened) -> None:
            if happened.what != "submitted":
                tell(self._event(happened))

        self._player.tell = heard
        moment = self._player.play(step.label, step.step)
        submitted = {job.name for job in step.submit}
        for waiting in moment.waiting:
            if waiting.workload in submitted:
                tell(Event("pending", waiting.workload, waiting.team, message=waiting.why))
        return moment

    def clear(self) -> None:
        """Deletes all jobs of the scenario."""
        self._player.clear()

    def _event(self, happened: Happened) -> Event:
        queue = self._queues[happened.job]
        if happened.what == "admitted":
            return Event("admitted", happened.job, queue)
        if happened.what == "finished":
            return Event("finished", happened.job, queue)
        by_queue = self._queues.get(happened.by, "")
        return Event("preempted", happened.job, queue, happened.by, by_queue, happened.reason, happened.message)


@contextmanager
def live_player(platform: Platform, stack: str, tree: Tree, report: Report) -> Generator[LivePlayer]:
    """A player on the embedded platform; all jobs of the scenario are deleted at the end.

    The jobs are submitted to the stack's own queues. If other workloads are there, copies of the queues are used, which
    have the same quota; also where a flavor has a topology, which the scenario's jobs do not state.

    Raises:
        ConsoleError: the platform does not carry the stack, or Kueue does not run there.
    """
    carried = platform.carried()
    if carried is None or carried.name != stack:
        what = f"carries stack {carried.name}" if carried else "carries no stack"
        replace = " --replace" if carried else ""
        raise ConsoleError(f"the embedded platform {what}, not {stack}", f"run `tenancy up {stack}{replace}`")
    if _CHART not in platform.controllers.running():
        raise ConsoleError("Kueue does not run on the embedded platform", f"run `tenancy up {stack}`")
    with platform.cluster() as cluster:
        places = own_places(tree)
        used = [name for name, place in places.items() if cluster.list(KUEUE, "Workload", namespace=place.namespace)]
        placed = [name for name, flavor in tree.flavors.items() if flavor.levels]
        if used or placed:
            reason = f"{', '.join(used)}: other workloads are in these queues" if used else _WITHOUT.format(placed[0])
            report(f"{reason}; the scenario is played on copies of all queues")
            with copied(cluster, tree) as copies, _cleared(LivePlayer(cluster, tree, copies)) as player:
                yield player
        else:
            with _cleared(LivePlayer(cluster, tree, places)) as player:
                yield player


@contextmanager
def _cleared(player: LivePlayer) -> Generator[LivePlayer]:
    try:
        yield player
    finally:
        player.clear()
