"""MultiKueue between a manager and two workers: three platforms side by side, with a real Kueue in each.

Takes four to five minutes, most of it until the stacks are deployed and proven.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml
from builders import EXISTING, Data, job, pool, team
from cli_builders import Project
from platforms import ending
from typer.testing import CliRunner

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.explain.why import KINDS, why
from gpu_tenancy.jobs.jobs import look_up
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local.up import up
from gpu_tenancy.model.plan.operators.kueue import CONTROLLER
from gpu_tenancy.model.spec.roles import TRAIN_JOB

pytestmark = [
    pytest.mark.platform,
    pytest.mark.skipif(
        not os.environ.get("GPU_TENANCY_MULTIKUEUE"), reason="three platforms; set GPU_TENANCY_MULTIKUEUE=1 to run it"
    ),
]
QUEUES: Final = "kueue.x-k8s.io/v1beta2"

WORKERS: Final = ("west", "east")
# Jobs of the manager, each with as many GPUs as one worker has.
JOBS: Final = {"nightly": ("batch/v1", "Job"), "finetune": TRAIN_JOB}


def stacks() -> dict[str, Data]:
    """Two workers with 16 GPUs each for one team, and their manager, whose jobs take 16 each."""
    shared: Data = {"priorities": {"high": 1000}, "operators": {"trainer": "installed"}}
    # With members, the API server also refuses what members could do beyond RBAC; not what Kueue does.
    people = {"members": {"researchers": ["group:ml"]}}
    teams = {"ml": team(priority="high", gpus={"h100": {"guaranteed": 8, "limit": 16}}, **people)}
    pools = {"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"}), "h100": pool()}
    worker = {**shared, "pools": pools, "teams": teams, "multikueue": {"manager": "hub"}, "guards": "deny"}
    named = [{"name": name, "stack": name, "secret": f"{name}-kubeconfig"} for name in WORKERS]
    jobs = {"nightly": job(gpus=8, workers=2), "finetune": job(framework="pytorch", gpus=8, workers=2)}
    hub = {"teams": {"ml": {"training": jobs}}, "multikueue": {"workers": named, "workerLostTimeout": "5s"}}
    sections = {**dict.fromkeys(WORKERS, worker), "hub": hub}
    return {name: {"cluster": dict(EXISTING), **one} for name, one in sections.items()}


@dataclass(frozen=True)
class Clusters:
    """A manager and its workers, by stack."""

    project: Project
    platforms: Mapping[str, Platform]
    clusters: Mapping[str, Cluster]

    @property
    def manager(self) -> Cluster:
        return self.clusters["hub"]

    def job(self, name: str, where: str = "hub") -> "Manifest | None":
        return self.clusters[where].get(*JOBS[name], name, "ml")

    def workload(self, name: str, where: str = "hub") -> "Manifest | None":
        """The Workload of a job, or its copy in a worker."""
        called = next((_name(one) for one in self._workloads("hub") if _is_of(one, name)), "")
        return next((one for one in self._workloads(where) if _name(one) == called), None)

    def _workloads(self, where: str) -> tuple[Manifest, ...]:
        return tuple(self.clusters[where].list(QUEUES, "Workload", namespace="ml"))

    def home(self, name: str) -> str:
        """The worker of a job, by the manager's record; empty until it is admitted."""
        return text_at(self.workload(name) or {}, "status", "clusterName")

    def wait_for_home(self, name: str) -> str:
        """Waits until a job runs in one worker with all of its pods."""
        found = self.manager.wait_for(lambda: self.home(name) or None, what=f"a worker of {name}", timeout=120)
        what = f"the pods of {name} in {found}"
        self.clusters[found].wait_for(lambda: runs_in(self.clusters[found], name), what=what, timeout=120)
        return found

    def why(self, name: str) -> str:
        state = read(self.manager, KINDS, "ml")
        found = why(target_of(look_up(self.manager, "ml", name), state), state)
        return " ".join((*found.lines, found.reason))


def _name(manifest: Manifest) -> str:
    return text_at(manifest, "metadata", "name")


def _is_of(workload: Manifest, job: str) -> bool:
    return any(text_at(owner, "name") == job for owner in maps_at(workload, "metadata", "ownerReferences"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Clusters]:
    """All stacks, deployed as by a user; the manager can reach its workers."""
    folder = tmp_path_factory.mktemp("multikueue")
    project = Project.at(folder / "project")
    for name, sections in stacks().items():
        project.write(name, sections)
    with ExitStack() as stack:
        platforms = {name: stack.enter_context(ending(folder / name)) for name in (*WORKERS, "hub")}
        for name, platform in platforms.items():
            up(name, platform, report, project.folder)
        clusters = {name: stack.enter_context(platform.cluster()) for name, platform in platforms.items()}
        yield Clusters(project, platforms, clusters)


def run(made: Clusters, worker: str, *arguments: object) -> str:
    reached = made.platforms[worker].kubeconfig
    place = "--project", made.project.folder, "--kubeconfig", reached
    given = ["access", "worker-kubeconfig", worker, *place, "--for", "1h", *arguments]
    result = CliRunner().invoke(app, [*map(str, given)])
    assert result.exit_code == 0, result.output
    return result.stdout


def runs_in(cluster: Cluster, name: str) -> bool:
    """Whether both pods of a job run in a cluster."""
    pods = cluster.list("v1", "Pod", namespace="ml")
    own = [pod for pod in pods if text_at(pod, "metadata", "name").startswith(f"{name}-")]
    return sum(text_at(pod, "status", "phase") == "Running" for pod in own) == 2


def test_managers_create_jobs_in_namespaces_of_teams_only(made: Clusters, tmp_path: Path) -> None:
    file = tmp_path / "west"
    assert run(made, "west", "--out", file) == ""
    assert file.stat().st_mode & 0o777 == 0o600
    guest = Cluster(file)
    pod: Manifest = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/a:1"}]}
    copy: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "copy", "namespace": "ml", "labels": {"kueue.x-k8s.io/queue-name": "ml"}},
        "spec": {"template": {"spec": pod}},
    }
    guest.create(copy, dry_run=True)
    with pytest.raises(ApiError, match=r"cannot create resource \"jobs\" in API group \"batch\""):
        guest.create({**copy, "metadata": {"name": "copy", "namespace": "default"}}, dry_run=True)
    with pytest.raises(ApiError, match=r"cannot list resource \"secrets\""):
        guest.list("v1", "Secret", namespace="ml")


def test_jobs_of_a_lost_worker_run_in_the_other(made: Clusters) -> None:
    manager = made.manager
    for name in WORKERS:
        secret = yaml.safe_load(run(made, name))
        assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", f"{name}-kubeconfig")
        manager.apply(secret)
    for name in WORKERS:
        manager.wait_for(
            lambda name=name: is_true(manager.get(QUEUES, "MultiKueueCluster", name) or {}, "Active"),
            what=f"worker {name} to be connected",
            timeout=60,
        )

    # Each job fills a worker: both workers get a copy of each, and the one that admits it first keeps it.
    homes = {name: made.wait_for_home(name) for name in JOBS}
    assert sorted(homes.values()) == sorted(WORKERS)
    assert not manager.list("v1", "Pod", namespace="ml")
    for name, home in homes.items():
        (other,) = (worker for worker in WORKERS if worker != home)
        made.clusters[other].wait_for(
            lambda name=name, other=other: made.workload(name, other) is None and made.job(name, other) is None,
            what=f"the copy of {name} in {other} to be removed",
        )
        assert made.workload(name, home)
        submitted = made.job(name) or {}
        assert at(submitted, "spec", "managedBy") == CONTROLLER
        assert f"runs in worker cluster {home}" in made.why(name)
    manager.wait_for(
        lambda: at(made.job("nightly") or {}, "status", "ready") == 2, what="the status of the Job", timeout=60
    )
    manager.wait_for(
        lambda: at(made.job("finetune") or {}, "status") == at(made.job("finetune", homes["finetune"]) or {}, "status"),
        what="the status of the TrainJob",
        timeout=60,
    )
    (of_nodes,) = maps_at(made.job("finetune") or {}, "status", "jobsStatus")
    assert (text_at(of_nodes, "name"), at(of_nodes, "ready")) == ("node", 1)

    # A job that is deleted in the manager is deleted in its worker, which is then free.
    lost, free = homes["nightly"], homes["finetune"]
    manager.delete(Reference(*JOBS["finetune"], "finetune", "ml"))
    made.clusters[free].wait_for(
        lambda: made.job("finetune", free) is None, what="the copy of the TrainJob to be deleted", timeout=60
    )

    # A worker that goes away: nothing answers at the address of its API server.
    made.platforms[lost].down()
    manager.wait_for(
        lambda: is_true(made.workload("nightly") or {}, "Evicted"), what="the job to be evicted", timeout=120
    )
    assert at(made.job("nightly") or {}, "spec", "suspend") is True
    # Kueue frees the quota when no pod is active; nobody but an administrator says so while the worker is away.
    ended: Manifest = {"status": {"active": 0, "ready": 0}}
    manager.patch(Reference(*JOBS["nightly"], "nightly", "ml"), ended, subresource="status")
    manager.wait_for(lambda: made.home("nightly") == free or None, what=f"the job to be given to {free}", timeout=120)
    assert made.wait_for_home("nightly") == free
    assert f"runs in worker cluster {free}" in made.why("nightly")
