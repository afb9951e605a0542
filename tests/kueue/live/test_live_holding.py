"""Holds on a real Kueue: what runs stays or is evicted, nothing is admitted, and a release admits it."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from queueing import Queueing
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.cli.main import app
from gpu_tenancy.inspect.hold_end import ending
from gpu_tenancy.inspect.holds import Hold
from gpu_tenancy.kube.client import Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
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
    assert f"1 workload (1 pod, 2 CPUs: {TEAM}/waits (2 CPUs)) pending: not admitted while it is held" in asked
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


def test_a_drained_flavor_is_used_again_when_its_end_comes(team: Queueing) -> None:
    done = tenancy(team, "cluster", "hold", FLAVOR, "--drain", "--until", "4h", "--yes")
    assert f"{TEAM}/runs (2 CPUs)) running: evicted, and pending again" in done.stdout
    flavor = live(team, "ResourceFlavor", FLAVOR)
    held = Hold.of(flavor)
    assert held
    assert not is_true(workload(team, "runs"), "QuotaReserved")
    assert at(workload(team, "runs"), "spec", "active") is True
    assert f"flavor {FLAVOR} is held by" in tenancy(team, "why", f"{TEAM}/runs").stdout
    binding, *owned = ending(held, "kueue-system")
    assert all(team.cluster.exists(*Reference.of(item)) for item in (binding, *owned))
    # What the CronJob sends at its minute, as it does: kubectl does not run in simulated pods.
    cron: Any = team.cluster.get(*Reference.of(owned[-1]))
    patch = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["initContainers"][0]["args"][-1]
    team.cluster.amend(Reference(KUEUE, "ResourceFlavor", FLAVOR), json.loads(patch.removeprefix("--patch=")))
    admitted(team, "runs", "waits")
    assert at(live(team, "ResourceFlavor", FLAVOR), "spec", "nodeTaints") == [TAINT]
    assert tenancy(team, "cluster", "release").stdout == "nothing is held\n"
    team.cluster.delete(Reference.of(binding))


def test_a_deployment_leaves_a_held_flavor_as_it_is(team: Queueing) -> None:
    tenancy(team, "cluster", "hold", FLAVOR, "--yes")
    with pytest.raises(Exception, match="gpu-tenancy-hold"):
        team.cluster.apply(kueue_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
    tenancy(team, "cluster", "release", FLAVOR)
    team.cluster.apply(kueue_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
