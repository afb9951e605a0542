"""Kueue's manager with the configuration of a stack: quota, past usage, and holds of queues and flavors."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml
from builders import Data, pool, stack, team
from queueing import QUEUES, Queueing, a_job, workload_of
from typer.testing import CliRunner, Result

from gpu_tenancy.base.json import Json, at, text_at
from gpu_tenancy.base.quantity import amounts
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.cluster_queues import Hold
from gpu_tenancy.embedded.certificates import write_account_config
from gpu_tenancy.embedded.controllers import launching
from gpu_tenancy.embedded.processes import free_ports
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.local.checks.queueing import check_queueing, manifest_of_anyone
from gpu_tenancy.maintenance.holding import ending
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source
from gpu_tenancy.simulation.copies import copied

KUEUE: Final = "kueue.x-k8s.io/v1beta2"


def configuration(queueing: Queueing) -> dict[str, Json]:
    found = queueing.cluster.get("v1", "ConfigMap", "kueue-manager-config", "kueue-system") or {}
    return yaml.safe_load(text_at(found, "data", "controller_manager_config.yaml"))


def test_kueue_has_the_configuration_of_the_stack_that_runs(queueing: Queueing) -> None:
    queueing.run(load(Source(stack(fairness="even", operators={"lws": "installed"}))))
    assert "fairSharing" in configuration(queueing)
    before = converted(queueing)
    assert f"workloads.{QUEUES}" in before
    assert webhooks(queueing) == {"kueue", "lws"}
    queueing.run(load(Source(stack())))
    assert "fairSharing" not in configuration(queueing)
    assert webhooks(queueing) == {"kueue"}
    assert converted(queueing) == before


def test_kueue_gets_other_ports_if_one_is_taken(queueing: Queueing, monkeypatch: pytest.MonkeyPatch) -> None:
    """An outgoing connection has the port of its metrics: Kueue is ready nevertheless, and exits some seconds later."""
    before = [one.ports for one in queueing.platform.controllers.recorded()]
    with socket.create_connection(("127.0.0.1", before[0]["webhook"])) as taken:
        given = iter([taken.getsockname()[1]])

        def ports(count: int) -> list[int]:
            health, metrics, *others = free_ports(count)
            return [health, next(given, metrics), *others]

        monkeypatch.setattr(launching, "free_ports", ports)
        queueing.platform.controllers.stop()
        queueing.run(load(Source(stack())))
        (kueue,) = queueing.platform.controllers.recorded()
        assert next(given, None) is None
        assert taken.getsockname()[1] not in kueue.ports.values()
        assert kueue.runs


def webhooks(queueing: Queueing) -> set[str]:
    """The operators whose webhooks the API server calls."""
    registered = queueing.cluster.list("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration")
    return {text_at(one, "metadata", "name").partition("-")[0] for one in registered}


def converted(queueing: Queueing) -> dict[str, Json]:
    """The generations of the definitions with conversion by Kueue: after a change, the API server serves them again."""
    found = queueing.cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    return {
        text_at(one, "metadata", "name"): at(one, "metadata", "generation")
        for one in found
        if at(one, "spec", "conversion", "strategy") == "Webhook"
    }


# Past usage of two teams that share a queue.

APPLIED: Final = (
    "Namespace", "PriorityClass", "WorkloadPriorityClass", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue",
)  # fmt: skip
PATIENCE: Final = 60
HEAVY, LIGHT = "heavy", "light"
USAGE: Data = {"usage": {"halfLife": "10m", "sampling": "1s"}}


def sections(fairness: Any) -> Data:
    """A queue of two CPUs, which both teams use."""
    quota = {"cpu": {"cpu": {"guaranteed": 2, "limit": 2}, "memory": {"guaranteed": "8Gi", "limit": "8Gi"}}}
    second = {"usageWeight": 1.5} if fairness is USAGE else {}
    return stack(
        pools={"cpu": pool("m7i.8xlarge", 1, labels={"node-type": "cpu"})},
        priorities={"ml-high": 1000},
        teams={HEAVY: team(quota=quota), LIGHT: team(queue=HEAVY, **second)},
        fairness=fairness,
    )


@pytest.fixture(params=[USAGE, "hierarchical"], ids=["by usage", "by priority"])
def next_team(queueing: Queueing, request: pytest.FixtureRequest) -> Iterator[str]:
    """The stack's objects on the platform; yields the expected next team."""
    with queueing.deployed(sections(request.param), "usage", APPLIED):
        yield LIGHT if request.param is USAGE else HEAVY


def usage_job(team_name: str, name: str, priority: str | None = None) -> Manifest:
    classed = {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    return a_job(name, team_name, {"cpu": "2", "memory": "1Gi"}, **classed)


def is_admitted(cluster: Cluster, team_name: str, name: str) -> bool | None:
    """Whether a job is admitted; None before Kueue knows it."""
    found = workload_of(cluster, name, team_name)
    return is_true(found, "Admitted") if found else None


def test_the_team_that_used_less_is_next(queueing: Queueing, next_team: str) -> None:
    cluster = queueing.cluster
    cluster.create(usage_job(HEAVY, "used", "ml-high"))
    cluster.wait_for(lambda: is_admitted(cluster, HEAVY, "used"), timeout=PATIENCE, what="the first job")
    for team_name, priority in ((HEAVY, "ml-high"), (LIGHT, None)):
        cluster.create(usage_job(team_name, "next", priority))
        cluster.wait_for(
            lambda of=team_name: is_admitted(cluster, of, "next") is False, timeout=PATIENCE, what="a pending job"
        )
    if next_team == LIGHT:
        # Kueue writes a measure and only then puts its queue in order, so the first has counted once a second is there.
        first = cluster.wait_for(
            lambda: measured(cluster) or None, timeout=PATIENCE, what="Kueue's measure of past usage"
        )
        cluster.wait_for(lambda: measured(cluster) > first, timeout=PATIENCE, what="a second measure of past usage")
    cluster.delete(Reference("batch/v1", "Job", "used", HEAVY))
    try:
        following = cluster.wait_for(
            lambda: [name for name in (HEAVY, LIGHT) if is_admitted(cluster, name, "next")] or None,
            timeout=PATIENCE,
            what="the next",
        )
        assert following == [next_team]
    finally:
        for name in (HEAVY, LIGHT):
            cluster.delete(Reference("batch/v1", "Job", "next", name))


def measured(cluster: Cluster) -> int:
    """CPU that the first team's LocalQueue consumed over time, by Kueue's status; the first sample can be empty."""
    found: Any = cluster.get(KUEUE, "LocalQueue", HEAVY, HEAVY) or {}
    status = found.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
    return amounts(status.get("consumedResources")).get("cpu", 0)


def test_only_the_whole_guarantee_is_reclaimed(queueing: Queueing) -> None:
    beside: Data = {"cpu": {"guaranteed": 32, "limit": 40}, "memory": {"guaranteed": "128Gi", "limit": "160Gi"}}
    owner = team(gpus={"h100": {"guaranteed": 8, "limit": 16}}, quota={"h100": beside})
    sections = stack(teams={"owner": owner, "other": team(gpus={"h100": {"guaranteed": 0, "limit": 8}})})
    tree = Tree(load(Source(sections)))
    with (
        queueing.deployed(sections, "guarantee", APPLIED),
        copied(queueing.cluster, tree, more=(manifest_of_anyone(tree),)) as places,
    ):
        whole, larger, *_ = check_queueing(queueing.cluster, tree, places)
    assert whole.promise == "owner gets 8 h100 GPUs with 32 CPUs and 128Gi back at once"
    assert "others used 16 of 16 h100 GPUs, 382 of 382 CPUs, " in whole.seen
    assert "requested 8 h100 GPUs with 33 CPUs and 128Gi; " in larger.seen
    assert "insufficient unused quota for cpu in flavor h100" in larger.message
    assert [check.seen for check in (whole, larger) if not check.holds] == []


# Holds.

TEAM: Final = "test-holding"
FLAVOR: Final = "test-held"
TAINT: Final[dict[str, Json]] = {"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}


def held_object(kind: str, name: str, namespace: str = "", **spec: Json) -> Manifest:
    metadata: Json = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def held(queueing: Queueing) -> Iterator[Queueing]:
    """A team with three CPUs, a running job of two CPUs and a pending one."""
    quota: Json = [{"name": FLAVOR, "resources": [{"name": "cpu", "nominalQuota": 3}]}]
    groups: Json = [{"coveredResources": ["cpu"], "flavors": quota}]
    objects: tuple[Manifest, ...] = (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM, "labels": {TEAM_LABEL[0]: TEAM_LABEL[1]}}},
        held_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]),
        held_object("ClusterQueue", TEAM, namespaceSelector={}, resourceGroups=groups),
        held_object("LocalQueue", TEAM, TEAM, clusterQueue=TEAM),
    )
    for item in objects:
        queueing.cluster.apply(item)
    for name in ("runs", "waits"):
        queueing.cluster.create(a_job(name, TEAM, {"cpu": "2"}, tolerated=str(TAINT["key"])))
        queueing.cluster.wait_for(lambda name=name: held_workload(queueing, name), what=f"the Workload of {name}")
        if name == "runs":
            admitted(queueing, name)
    yield queueing
    for name in ("runs", "waits"):
        queueing.cluster.delete(Reference("batch/v1", "Job", name, TEAM))
    for kind, name in (("LocalQueue", TEAM), ("ClusterQueue", TEAM), ("ResourceFlavor", FLAVOR)):
        queueing.cluster.delete(Reference(KUEUE, kind, name, TEAM if kind == "LocalQueue" else ""))


def held_workload(queueing: Queueing, name: str) -> Manifest:
    return workload_of(queueing.cluster, name, TEAM)


def _pods(queueing: Queueing, job: str) -> tuple[Manifest, ...]:
    return queueing.cluster.list("v1", "Pod", namespace="kueue-system", labels=f"batch.kubernetes.io/job-name={job}")


def admitted(queueing: Queueing, *names: str) -> None:
    """Waits until one of them is admitted: of two that were created in one second, Kueue admits either."""

    def one() -> bool:
        return any(is_true(held_workload(queueing, name), "Admitted") for name in names)

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
    """Sends kubectl's requests."""
    patch = pod["initContainers"][0]["args"][-1]
    _, kind, name, _ = pod["containers"][0]["args"]
    with as_its_account(team, pod) as own:
        own.amend(Reference(KUEUE, "ResourceFlavor", FLAVOR), json.loads(patch.removeprefix("--patch=")))
        assert kind == "clusterrolebinding"
        own.delete(Reference("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name), wait=0)


NO_KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl on the PATH")


@pytest.mark.parametrize("end", [pytest.param(by_kubectl, marks=NO_KUBECTL), by_requests])
def test_a_drained_flavor_is_used_again_when_its_end_comes(
    held: Queueing, end: Callable[[Queueing, Any], None]
) -> None:
    done = tenancy(held, "cluster", "hold", FLAVOR, "--drain", "--until", "4h", "--yes")
    assert f"running, evicted and pending again: 1 workload, 1 pod, 2 CPUs: {TEAM}/runs (2 CPUs)" in done.stdout
    hold = Hold.of(live(held, "ResourceFlavor", FLAVOR))
    assert hold
    assert not is_true(held_workload(held, "runs"), "QuotaReserved")
    assert at(held_workload(held, "runs"), "spec", "active") is True
    assert f"flavor {FLAVOR} is held by" in tenancy(held, "why", f"{TEAM}/runs").stdout
    binding, *owned = ending(hold, "kueue-system")
    assert all(held.cluster.exists(*Reference.of(item)) for item in (binding, *owned))
    cron: Any = held.cluster.get(*Reference.of(owned[-1]))
    template = cron["spec"]["jobTemplate"]
    metadata: Json = {"name": "ends-a-hold", "namespace": "kueue-system"}
    started: Manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"]}
    held.cluster.create(started)  # What the CronJob does at its minute: its pod is created, and not run here.
    held.cluster.wait_for(lambda: _pods(held, "ends-a-hold"), what="the pod that ends the hold")
    held.cluster.delete(Reference.of(started), foreground=True)
    pod = template["spec"]["template"]["spec"]
    with as_its_account(held, pod) as own:
        for refused in (
            lambda: own.list(KUEUE, "ResourceFlavor"),
            lambda: own.delete(Reference(KUEUE, "ClusterQueue", TEAM)),
        ):
            with pytest.raises(ApiError, match=r"cannot (list|delete) resource"):
                refused()
    end(held, pod)
    admitted(held, "runs", "waits")
    assert at(live(held, "ResourceFlavor", FLAVOR), "spec", "nodeTaints") == [TAINT]
    assert tenancy(held, "cluster", "release").stdout == "nothing is held\n"
    for item in (binding, *owned):
        held.cluster.wait_gone(Reference.of(item))


def test_a_deployment_leaves_a_held_flavor_as_it_is(held: Queueing) -> None:
    tenancy(held, "cluster", "hold", FLAVOR, "--yes")
    with pytest.raises(Exception, match="gpu-tenancy-hold"):
        held.cluster.apply(held_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
    tenancy(held, "cluster", "release", FLAVOR, "--yes")
    held.cluster.apply(held_object("ResourceFlavor", FLAVOR, nodeTaints=[TAINT]))
