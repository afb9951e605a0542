"""Holds on a real Kueue: what runs stays or is evicted, nothing is admitted, and a release admits it."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from queueing import Queueing
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.holds import Hold
from gpu_tenancy.embedded.certificates import write_account_config
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.maintenance.hold_end import ending
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
TEAM: Final = "test-holding"
FLAVOR: Final = "test-held"
TAINT: Final[dict[str, Json]] = {"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}


def kueue_object(kind: str, name: str, namespace: str = "", **spec: Json) -> Manifest:
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def team(queueing: Queueing) -> Iterator[Queueing]:
    """A team with three CPUs, a running job of two CPUs and a pending one."""
    quota: Json = [{"name": FLAVOR, "resources": [{"name": "cpu", "nominalQuota": 3}]}]
    groups: Json = [{"coveredResources": ["cpu"], "flavors": quota}]
    objects: tuple[Manifest, ...] = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": {TEAM_LABEL[0]: TEAM_LABEL[1]}}},
        kueue_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]),
        kueue_object("ClusterQueue", TEAM, namespaceSelector={}, resourceGroups=groups),
        kueue_object("LocalQueue", TEAM, TEAM, clusterQueue=TEAM),
    )
    for item in objects:
        queueing.cluster.apply(item)
    for name in ("runs", "waits"):
        queueing.cluster.create(job(name))
        queueing.cluster.wait_for(lambda name=name: workload(queueing, name), what=f"the Workload of {name}")
        if name == "runs":
            admitted(queueing, name)
    yield queueing
    for name in ("runs", "waits"):
        queueing.cluster.delete(Reference("batch/v1", "Job", name, TEAM))
    for kind, name in (("LocalQueue", TEAM), ("ClusterQueue", TEAM), ("ResourceFlavor", FLAVOR)):
        queueing.cluster.delete(Reference(KUEUE, kind, name, TEAM if kind == "LocalQueue" else ""))


def job(name: str) -> Manifest:
    container: Json = {"name": "main", "image": "example.com/job:1", "resources": {"requests": {"cpu": "2"}}}
    tolerations: Json = [{"key": TAINT["key"], "operator": "Exists"}]
    pod: Json = {"restartPolicy": "Never", "containers": [container], "tolerations": tolerations}
    metadata: Json = {"name": name, "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": TEAM}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def workload(queueing: Queueing, name: str) -> Any:
    found = queueing.cluster.list(KUEUE, "Workload", namespace=TEAM)
    return next((one for one in found if text_at(one, "metadata", "name").startswith(f"job-{name}-")), None)


def _pods(queueing: Queueing, job: str) -> tuple[Manifest, ...]:
    return queueing.cluster.list("v1", "Pod", namespace="kueue-system", labels=f"batch.kubernetes.io/job-name={job}")


def admitted(queueing: Queueing, *names: str) -> None:
    """Waits until one of them is: of two that were created in one second, Kueue admits either."""

    def one() -> bool:
        found = [workload(queueing, name) for name in names]
        return any(is_true(live, "Admitted") for live in found if live)

    queueing.cluster.wait_for(one, what=f"{' or '.join(names)} to be admitted")


def tenancy(queueing: Queueing, *words: str, exit_code: int = 0) -> Result:
    kubeconfig = ("--kubeconfig", str(queueing.platform.kubeconfig))
    done = CliRunner(env={"COLUMNS": "240"}).invoke(app, [*words, *kubeconfig])
    assert done.exit_code == exit_code, done.output
    return done


def live(queueing: Queueing, kind: str, name: str) -> Manifest:
    found = queueing.cluster.get(KUEUE, kind, name)
    assert found
    return found


def test_a_held_team_admits_nothing_until_it_is_released(team: Queueing) -> None:
    asked = tenancy(team, "cluster", "hold", TEAM, "--until", "4h", "--dry-run").stdout
    assert f"pending, not admitted while it is held: 1 workload, 1 pod, 2 CPUs: {TEAM}/waits (2 CPUs)" in asked
    assert at(live(team, "ClusterQueue", TEAM), "spec", "stopPolicy") == "None"
    tenancy(team, "cluster", "hold", TEAM, "--yes")
    team.cluster.delete(Reference("batch/v1", "Job", "runs", TEAM))
    assert "is held by" in tenancy(team, "why", f"{TEAM}/waits").stdout
    assert f"ClusterQueue {TEAM} is held by" in tenancy(team, "usage", TEAM).stdout
    assert not is_true(workload(team, "waits"), "Admitted")  # Three CPUs are free.
    tenancy(team, "cluster", "release", TEAM)
    admitted(team, "waits")
    assert at(live(team, "ClusterQueue", TEAM), "spec", "stopPolicy") == "None"


def test_a_drained_team_ends_what_runs_and_starts_it_again(team: Queueing) -> None:
    tenancy(team, "cluster", "hold", TEAM, "--drain", "--yes")
    team.cluster.wait_for(lambda: not is_true(workload(team, "runs"), "QuotaReserved"), what="the eviction")
    tenancy(team, "cluster", "release", TEAM)
    admitted(team, "runs", "waits")


def as_its_account(team: Queueing, pod: Any) -> Cluster:
    """A client with the token of the CronJob's ServiceAccount, and nothing else."""
    token = team.cluster.token("kueue-system", pod["serviceAccountName"], seconds=600)
    return Cluster(write_account_config(team.platform.places, "ends-a-hold", token))


def by_kubectl(team: Queueing, pod: Any) -> None:
    """Runs the containers of the pod in their order, each with its own arguments."""
    with as_its_account(team, pod):
        kubeconfig = str(team.platform.places.client_config("ends-a-hold"))
    for container in (*pod["initContainers"], *pod["containers"]):
        done = subprocess.run(
            ["kubectl", "--kubeconfig", kubeconfig, *container["args"]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def by_requests(team: Queueing, pod: Any) -> None:
    """Sends what kubectl sends."""
    patch = pod["initContainers"][0]["args"][-1]
    _, kind, name, _ = pod["containers"][0]["args"]
    with as_its_account(team, pod) as own:
        own.amend(Reference(KUEUE, "ResourceFlavor", FLAVOR), json.loads(patch.removeprefix("--patch=")))
        assert kind == "clusterrolebinding"
        own.delete(Reference("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name), wait=0)


NO_KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl on the PATH")


@pytest.mark.parametrize("end", [pytest.param(by_kubectl, marks=NO_KUBECTL), by_requests])
def test_a_drained_flavor_is_used_again_when_its_end_comes(
    team: Queueing, end: Callable[[Queueing, Any], None]
) -> None:
    done = tenancy(team, "cluster", "hold", FLAVOR, "--drain", "--until", "4h", "--yes")
    assert f"running, evicted and pending again: 1 workload, 1 pod, 2 CPUs: {TEAM}/runs (2 CPUs)" in done.stdout
    flavor = live(team, "ResourceFlavor", FLAVOR)
    held = Hold.of(flavor)
    assert held
    assert not is_true(workload(team, "runs"), "QuotaReserved")
    assert at(workload(team, "runs"), "spec", "active") is True
    assert f"flavor {FLAVOR} is held by" in tenancy(team, "why", f"{TEAM}/runs").stdout
    binding, *owned = ending(held, "kueue-system")
    assert all(team.cluster.exists(*Reference.of(item)) for item in (binding, *owned))
    cron: Any = team.cluster.get(*Reference.of(owned[-1]))
    template = cron["spec"]["jobTemplate"]
    metadata: Json = {"name": "ends-a-hold", "namespace": "kueue-system"}
    started: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
    team.cluster.create(started)  # What the CronJob does at its minute: its pod is created, and not run here.
    team.cluster.wait_for(lambda: _pods(team, "ends-a-hold"), what="the pod that ends the hold")
    team.cluster.delete(Reference.of(started), foreground=True)
    pod = template["spec"]["template"]["spec"]
    with as_its_account(team, pod) as own:
        for refused in (
            lambda: own.list(KUEUE, "ResourceFlavor"),
            lambda: own.delete(Reference(KUEUE, "ClusterQueue", TEAM)),
        ):
            with pytest.raises(ApiError, match=r"cannot (list|delete) resource"):
                refused()
    end(team, pod)
    admitted(team, "runs", "waits")
    assert at(live(team, "ResourceFlavor", FLAVOR), "spec", "nodeTaints") == [TAINT]
    assert tenancy(team, "cluster", "release").stdout == "nothing is held\n"
    for item in (binding, *owned):
        team.cluster.wait_gone(Reference.of(item))


def test_a_deployment_leaves_a_held_flavor_as_it_is(team: Queueing) -> None:
    tenancy(team, "cluster", "hold", FLAVOR, "--yes")
    with pytest.raises(Exception, match="gpu-tenancy-hold"):
        team.cluster.apply(kueue_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
    tenancy(team, "cluster", "release", FLAVOR)
    team.cluster.apply(kueue_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
