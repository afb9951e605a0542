"""The real Kueue of a run: on an embedded platform of its own, with the configuration of this program's release."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.agree.objects import KINDS, KUEUE, NAMESPACE, SCENARIO, shared
from benchmarks.agree.observing import Observer
from benchmarks.agree.playing import Stage
from benchmarks.agree.tenancies import Data
from benchmarks.leftovers import kill_at_end
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded.controllers import choosing
from gpu_tenancy.embedded.controllers.table import module_of, read_rows
from gpu_tenancy.embedded.definitions import fetch, install
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.pruning import empty
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack

_FAIRNESS: Final = {False: "hierarchical", True: "even"}
"""The key `fairness` of a stack, by fair sharing."""


def version() -> str:
    """The version of Kueue that runs: that of its Go module."""
    return module_of(read_rows()["kueue"]).version.removeprefix("v")


@contextmanager
def platform(home: Path, report: Report) -> Generator[Platform]:
    """An embedded platform for the time of the block; what an interrupted run has left is removed first."""
    kill_at_end()
    made = Platform(home.absolute())
    made.down(report)
    # The collectors of the programs have memory to spend.
    os.environ.setdefault("GOGC", "400")
    try:
        made.up(report)
        yield made
    finally:
        made.down(report)


@contextmanager
def stage(made: Platform, scenarios: Sequence[Data], report: Report, *, fair: bool) -> Generator[Stage]:
    """Has Kueue run with or without fair sharing, with what scenarios share; their objects stay."""
    with made.cluster() as cluster, made.cluster() as watched:
        start(made, cluster, report, fair=fair)
        for manifest in shared(scenarios):
            cluster.apply(manifest)
        observer = Observer(watched)
        with observer.following():
            yield Stage(cluster, observer)


def clear(cluster: Cluster) -> None:
    """Deletes all that scenarios have left, for a platform that others use."""
    namespace = Reference("v1", "Namespace", NAMESPACE)
    cluster.delete(namespace, wait=0)
    empty(cluster, NAMESPACE)
    for kind in KINDS:
        for item in cluster.list(KUEUE, kind, labels=SCENARIO, metadata_only=True):
            cluster.delete(Reference.of(item), wait=0)
    for kind in KINDS:
        cluster.wait_for(
            lambda kind=kind: not cluster.list(KUEUE, kind, labels=SCENARIO, metadata_only=True),
            what=f"the {kind}s of scenarios to be deleted",
        )
    cluster.wait_gone(namespace, timeout=300)


def start(made: Platform, cluster: Cluster, report: Report, *, fair: bool) -> None:
    """Starts Kueue as it runs in a stack with this key `fairness`.

    Raises:
        ConsoleError: Kueue cannot be built or does not start.
    """
    stack = _stack(fair=fair)
    rows = choosing.rows_of(Tree(stack))
    pins = needed(read_pins(), {"kueue.x-k8s.io"})
    install(cluster, fetch(pins, made.cache, report), made.cache, report)
    found, unavailable = choosing.find(rows, made.cache, report)
    for program, reason in unavailable.items():
        raise ConsoleError(f"{program} is not available: {reason}", f"set {choosing.FOLDER} to a folder with it")
    made.controllers.bring(cluster, choosing.wanted(stack, found), made.cache, report)


def _stack(*, fair: bool) -> Stack:
    cluster = {"cloud": "existing", "provides": ["networkPolicies", "resourceMetrics"]}
    pools = {"h100": {"machine": "p5.48xlarge", "nodes": 1}}
    teams = {"team": {"owner": "owner", "costCenter": "rd-001", "gpus": {"h100": {"guaranteed": 8}}}}
    return load(Source({"cluster": cluster, "fairness": _FAIRNESS[fair], "pools": pools, "teams": teams}))
