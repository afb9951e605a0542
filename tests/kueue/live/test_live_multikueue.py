"""MultiKueue between two platforms side by side, with a real Kueue in both.

Takes two to three minutes, most of it until both stacks are deployed and proven.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from builders import EXISTING, Data, job, pool, team
from console_builders import Project
from platforms import running
from typer.testing import CliRunner

from gpu_tenancy.console.cluster.client import Cluster, Manifest
from gpu_tenancy.console.cluster.errors import ApiError
from gpu_tenancy.console.cluster.references import Reference
from gpu_tenancy.console.commands import workers
from gpu_tenancy.console.embedded.platform import Platform
from gpu_tenancy.console.live.reading import read
from gpu_tenancy.console.live.target import look_up, target_of
from gpu_tenancy.console.live.why import KINDS, why
from gpu_tenancy.console.offline.wire import at, text_at
from gpu_tenancy.console.progress import Report
from gpu_tenancy.console.up import up
from gpu_tenancy.model.plan.multikueue import CONTROLLER

pytestmark = pytest.mark.skipif(
    not os.environ.get("GPU_TENANCY_MULTIKUEUE"), reason="two platforms; set GPU_TENANCY_MULTIKUEUE=1 to run it"
)
QUEUES = "kueue.x-k8s.io/v1beta2"


def stacks() -> dict[str, Data]:
    """A manager and a worker, which has 16 GPUs for one team."""
    shared: Data = {"priorities": {"high": 1000}}
    # With members, the API server also refuses what members could do beyond RBAC; not what Kueue does.
    people = {"members": {"researchers": ["group:ml"]}}
    teams = {"ml": team(priority="high", gpus={"h100": {"guaranteed": 8, "limit": 16}}, **people)}
    pools = {"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool()}
    worker = {**shared, "pools": pools, "teams": teams, "multikueue": {"manager": "hub"}}
    named = {"name": "west", "stack": "west", "secret": "west-kubeconfig"}
    hub = {
        "teams": {"ml": {"training": {"nightly": job(gpus=8, workers=2)}}},
        "multikueue": {"workers": [named], "workerLostTimeout": "5s"},
    }
    return {name: {"cluster": dict(EXISTING), **sections} for name, sections in (("west", worker), ("hub", hub))}


@dataclass(frozen=True)
class Pair:
    """A manager and its worker."""

    project: Project
    hub: Platform
    west: Platform
    manager: Cluster
    worker: Cluster

    def why(self, name: str) -> str:
        """What `tenancy why` says about a job of the manager."""
        state = read(self.manager, KINDS, "ml")
        found = why(target_of(look_up(self.manager, "ml", name), state), state)
        return " ".join((*found.lines, found.reason))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Pair]:
    """Both stacks, deployed as a user does."""
    folder = tmp_path_factory.mktemp("multikueue")
    project = Project.at(folder / "project")
    for name, sections in stacks().items():
        project.write(name, sections)
    with ExitStack() as stack:
        west, hub = (stack.enter_context(running(folder / name, report)) for name in ("west", "hub"))
        for name, platform in (("west", west), ("hub", hub)):
            up(name, platform, report, project.folder)
        manager, worker = (stack.enter_context(one.cluster()) for one in (hub, west))
        yield Pair(project, hub, west, manager, worker)


def run(pair: Pair, *arguments: object) -> str:
    """What `tenancy worker-kubeconfig west` prints."""
    app = typer.Typer()
    workers.register(app)
    given = ["west", "--project", pair.project.folder, "--for", "1h", "--kubeconfig", pair.west.kubeconfig, *arguments]
    result = CliRunner().invoke(app, [*map(str, given)])
    assert result.exit_code == 0, result.output
    return result.stdout


def condition(manifest: Manifest, kind: str) -> str:
    """The status of a condition; empty where there is none."""
    conditions = at(manifest, "status", "conditions")
    found = conditions if isinstance(conditions, list) else []
    return next((text_at(one, "status") for one in found if isinstance(one, dict) and one.get("type") == kind), "")


def runs_in(cluster: Cluster) -> bool:
    """Whether both pods of the job run in a cluster."""
    pods = cluster.list("v1", "Pod", namespace="ml")
    return sum(text_at(pod, "status", "phase") == "Running" for pod in pods) == 2


def test_the_manager_may_create_jobs_in_the_namespaces_of_teams_only(pair: Pair, tmp_path: Path) -> None:
    file = tmp_path / "west"
    assert run(pair, "--out", file) == ""
    assert file.stat().st_mode & 0o777 == 0o600
    guest = Cluster(file)
    pod: Manifest = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/a:1"}]}
    made: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "copy", "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "ml"}},
        "spec": {"template": {"spec": pod}},
    }
    guest.create(made, dry_run=True)
    with pytest.raises(ApiError, match=r"cannot create resource \"jobs\" in API group \"batch\""):
        guest.create({**made, "metadata": {"name": "copy", "namespace": "default"}}, dry_run=True)
    with pytest.raises(ApiError, match=r"cannot list resource \"secrets\""):
        guest.list("v1", "Secret", namespace="ml")


def test_a_job_of_the_manager_runs_in_the_worker_and_comes_back(pair: Pair) -> None:
    manager, worker = pair.manager, pair.worker
    written = run(pair, "--manager-kubeconfig", pair.hub.kubeconfig)
    assert "Secret kueue-system/west-kubeconfig of stack hub: written, valid until" in written
    manager.wait_for(
        lambda: condition(manager.get(QUEUES, "MultiKueueCluster", "west") or {}, "Active") == "True",
        what="the worker to be connected",
        timeout=60,
    )
    worker.wait_for(lambda: runs_in(worker), what="the pods in the worker", timeout=60)
    assert not manager.list("v1", "Pod", namespace="ml")
    submitted = manager.get("batch/v1", "Job", "nightly", "ml") or {}
    assert at(submitted, "spec", "managedBy") == CONTROLLER
    manager.wait_for(
        lambda: at(manager.get("batch/v1", "Job", "nightly", "ml") or {}, "status", "ready") == 2,
        what="the status of the job in the manager",
        timeout=60,
    )
    assert "runs in worker cluster west" in pair.why("nightly")
    # A worker that goes away: nothing answers at the address of its API server.
    pair.west.down()
    manager.wait_for(
        lambda: all(condition(one, "Evicted") == "True" for one in manager.list(QUEUES, "Workload", namespace="ml")),
        what="the job to be evicted",
        timeout=120,
    )
    assert at(manager.get("batch/v1", "Job", "nightly", "ml") or {}, "spec", "suspend") is True
    # Kueue frees the quota when no pod is active; nobody but an administrator says so while the worker is away.
    ended: Manifest = {"status": {"active": 0, "ready": 0}}
    manager.patch(Reference("batch/v1", "Job", "nightly", "ml"), ended, subresource="status")
    manager.wait_for(
        lambda: all(condition(one, "Admitted") == "False" for one in manager.list(QUEUES, "Workload", namespace="ml")),
        what="the quota to be free",
        timeout=60,
    )
