"""Checks of the stack `local` on nodes with its pools' GPUs, including checks that must fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from acceptance_builders import a_binding, a_pod, declared, flat, in_waves, refusal, resources, sections_of
from builders import GPU
from removing import remove

from gpu_tenancy.embedded.nodes import NodeShape, add_node, bring_nodes, node_shapes
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks import Check, placement
from gpu_tenancy.local.checks.access import check_access
from gpu_tenancy.local.checks.check import CHECK
from gpu_tenancy.local.checks.placement import NAMESPACE, check_placement
from gpu_tenancy.local.settling import settle
from gpu_tenancy.local.summary import summarise
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


@dataclass(frozen=True)
class Tenancy:
    plan: Plan
    tree: Tree

    @property
    def without_teams(self) -> Plan:
        """Only the scheduler's checks remain."""
        return replace(self.plan, teams=())


@pytest.fixture(scope="module")
def local(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenancy]:
    sections = sections_of("local")
    stack = load(Source(sections))
    made = Tenancy(plan(stack), Tree(stack))
    waves = in_waves(declared(sections))
    bring_nodes(cluster, node_shapes(stack))
    apply(cluster, waves, tmp_path_factory.mktemp("quotas") / "inventory.json")
    settle(cluster, made.plan)
    yield made
    remove(cluster, flat(waves))
    bring_nodes(cluster, ())


def broken(found: tuple[Check, ...]) -> set[str]:
    return {check.promise for check in found if not check.holds}


def test_all_checks_pass_and_leave_no_objects(cluster: Cluster, local: Tenancy) -> None:
    found = check_placement(cluster, local.plan, local.tree)
    assert [f"{check.promise}: {check.seen}" for check in found if not check.holds] == []
    promises = {check.promise for check in found}
    assert promises >= {
        f"{team.namespace.name} cannot use more than its {most} {GPU}"
        for team, most in zip(local.plan.teams, (8, 16, 36, 50), strict=True)
    }
    assert promises >= {f"pods that request {flavor} run on {flavor} nodes only" for flavor in ("a100", "h100", "l4")}
    assert "on a full node, ml-critical waits for ml-low: only Kueue preempts" in promises
    assert "pods without a toleration for the GPU taint do not run on a100 nodes" in promises
    assert all("exceeded quota: budget" in check.message for check in found if "cannot use more" in check.promise)
    assert cluster.list("v1", "Node", labels=CHECK) == ()
    cluster.wait_gone(Reference("v1", "Namespace", NAMESPACE))  # `check_placement` does not wait for the deletion.


@pytest.mark.usefixtures("impatient")
def test_the_check_of_a_quota_fails_without_the_quota(cluster: Cluster, local: Tenancy) -> None:
    quota = cluster.get("v1", "ResourceQuota", "budget", "ml-research")
    assert quota
    cluster.delete(Reference.of(quota))
    try:
        found = check_placement(cluster, replace(local.plan, queues=replace(local.plan.queues, flavors=())), local.tree)
    finally:
        cluster.create({key: quota[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": _name(quota)})
    assert broken(found) == {f"ml-research cannot use more than its 0 {GPU}"}
    assert [check.seen for check in found if not check.holds] == ["0 used; a pod with 1 is admitted"]


def test_access_is_checked_for_each_team_and_for_administrators(cluster: Cluster, local: Tenancy) -> None:
    found = {check.promise: check for check in check_access(cluster, local.tree)}
    assert broken(tuple(found.values())) == set()
    assert [*found] == [
        *(f"people may do in {team} what their role says, and nothing else" for team in local.tree.stack.teams),
        "only administrators change quotas, queues, networks, roles and guards",
    ]
    assert found["people may do in ml-production what their role says, and nothing else"].seen == (
        "group:product, group:security: read workloads;"
        " group:ml-production: read workloads, submit jobs, open shells;"
        " group:ml-production-oncall: read workloads, submit jobs, open shells, read Secrets, stop the queue;"
        " 3 others: nothing"
    )


def test_access_changed_by_hand_fails_its_check(cluster: Cluster, local: Tenancy) -> None:
    given = bound("given", "view", "ml-research")
    taken = cluster.get("rbac.authorization.k8s.io/v1", "RoleBinding", "gpu-tenancy-viewers", "ml-serving")
    assert taken
    cluster.create(given)
    cluster.create(bound("quotas", "admin", "ml-production"))
    cluster.delete(Reference.of(taken))
    try:
        found = [check for check in check_access(cluster, local.tree) if not check.holds]
    finally:
        cluster.delete(Reference.of(given))
        cluster.delete(Reference.of(bound("quotas", "admin", "ml-production")))
        cluster.create({**taken, "metadata": _name(taken)})
    assert {check.promise.split()[4]: check.seen for check in found[:-1]} == {
        "ml-production": "group:product may submit jobs, against the stack; group:product may open shells, against the"
        " stack; group:product may read Secrets, against the stack",
        "ml-research": "group:product may read workloads, against the stack",
        "ml-serving": "group:product may not read workloads, against the stack",
    }
    assert "group:product may create rolebindings.rbac.authorization.k8s.io in ml-production" in found[-1].seen


def bound(name: str, role: str, namespace: str) -> Any:
    return a_binding(name, role, ("Group", "product"), namespace=namespace)


def _name(manifest: Any) -> Any:
    return {key: manifest["metadata"][key] for key in ("name", "namespace")}


def test_nodes_with_wrong_taints_or_labels_fail_checks(
    cluster: Cluster, local: Tenancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {f"check-{flavor.name}": flavor.node_labels for flavor in local.plan.queues.flavors}
    swapped = {"check-h100": labels["check-l4"], "check-l4": labels["check-h100"]}

    def add(cluster: Cluster, shape: NodeShape) -> None:
        kept = tuple(taint for taint in shape.taints if taint.key != GPU or shape.name != "check-a100")
        add_node(cluster, replace(shape, taints=kept, labels={**shape.labels, **swapped.get(shape.name, {})}))

    monkeypatch.setattr(placement, "add_node", add)
    found = check_placement(cluster, replace(local.without_teams, priorities={}), local.tree)
    assert broken(found) == {
        "pods that request h100 run on h100 nodes only",
        "pods that request l4 run on l4 nodes only",
        "pods without a toleration for the GPU taint do not run on a100 nodes",
    }


def test_a_class_that_preempts_fails_its_check(cluster: Cluster, local: Tenancy) -> None:
    name = Reference("scheduling.k8s.io/v1", "PriorityClass", "ml-critical")
    before = cluster.get(*name)
    assert before
    kept: Any = {key: before[key] for key in ("apiVersion", "kind", "value")} | {"metadata": {"name": name.name}}
    cluster.delete(name)
    cluster.create({**kept, "preemptionPolicy": "PreemptLowerPriority"})
    try:
        found = check_placement(cluster, local.without_teams, local.tree)
    finally:
        cluster.delete(name)
        cluster.create({**kept, "preemptionPolicy": "Never"})
    assert broken(found) == {"on a full node, ml-critical waits for ml-low: only Kueue preempts"}
    assert "is not kept from ending pods" in found[-1].seen


def test_limit_ranges_add_no_gpus_and_enforce_the_maximum(cluster: Cluster, local: Tenancy) -> None:
    research = local.plan.teams[2].namespace
    assert (research.name, research.limits.max[GPU]) == ("ml-research", 8)
    none = resources(cluster.create(a_pod("ml-research", limits={"cpu": "100m", "memory": "128Mi"}), dry_run=True))
    assert (none["limits"][GPU], none["requests"][GPU]) == ("0", "0")
    silent = resources(cluster.create(a_pod("ml-research", limits={}), dry_run=True))
    assert silent["requests"] == {"cpu": "1", "memory": "4Gi", GPU: "0"}
    assert silent["limits"] == {"cpu": "2", "memory": "8Gi", GPU: "0"}
    nine = a_pod("ml-research", limits={"cpu": 1, "memory": "4Gi", GPU: 9})
    words = refusal(lambda: cluster.create(nine, dry_run=True))
    assert "maximum nvidia.com/gpu usage per Container is 8, but limit is 9" in words


def test_the_summary_shows_quotas_and_usage_of_the_cluster(cluster: Cluster, local: Tenancy) -> None:
    found = summarise(cluster, local.plan, local.tree)
    rows = {
        (holding.team, holding.flavor, holding.scheduler): (holding.guaranteed, holding.limit, holding.lends)
        for holding in found.holdings
    }
    assert rows == {
        ("ml-experiments", "a100", "Kueue"): (0, 8, True),
        ("ml-production", "h100", "Kueue"): (16, 16, False),
        ("ml-research", "a100", "Kueue"): (8, 32, True),
        ("ml-serving", "l4", "Kueue"): (50, 50, False),
        ("ml-research", "l4", "Volcano"): (4, 4, False),
    }
    used = {(holding.team, holding.flavor): holding.used for holding in found.holdings if holding.scheduler == "Kueue"}
    assert used["ml-production", "h100"] == 4
    assert used["ml-serving", "l4"] == 3 + 8  # its server, and `calibrate`, which no Kueue holds back here
    assert {supply.flavor: (supply.nodes, supply.capacity) for supply in found.supply} == {
        "a100": (4, 32),
        "h100": (2, 16),
        "l4": (16, 64),
    }
    assert found.astray == ()


def test_a_pod_on_a_node_of_another_model_is_reported(cluster: Cluster, local: Tenancy) -> None:
    (lost, *_) = (pod for pod in cluster.list("v1", "Pod", namespace="ml-serving") if at_node(pod))
    node: Any = cluster.get("v1", "Node", at_node(lost))
    label = "nvidia.com/gpu.product"
    other: Any = {"metadata": {"labels": {label: "NVIDIA-A100-SXM4-80GB"}}}
    cluster.patch(Reference.of(node), other)
    try:
        astray = summarise(cluster, local.plan, local.tree).astray
    finally:
        cluster.patch(Reference.of(node), {"metadata": {"labels": {label: node["metadata"]["labels"][label]}}})
    assert f"ml-serving/{_name(lost)['name']}" in astray


def at_node(pod: Any) -> str:
    return pod["spec"].get("nodeName", "")


class Busy:
    """A cluster in which another pod of the team starts between the first read of a quota and the first attempt."""

    server = "https://example.invalid"

    def __init__(self, hard: int, used: list[int]) -> None:
        self.hard, self.used, self.tried = hard, used, list[int]()

    def get(self, *_: str) -> dict[str, Any]:
        used = self.used.pop(0) if len(self.used) > 1 else self.used[0]
        hard = {f"requests.{GPU}": str(self.hard)}
        return {"spec": {"hard": hard}, "status": {"hard": hard, "used": {f"requests.{GPU}": str(used)}}}

    def rejected(self, requested: int) -> str | None:
        self.tried.append(requested)
        return "exceeded quota" if requested > self.hard - self.used[-1] else None

    def wait_for(self, condition: Callable[[], bool], **_: object) -> bool:
        return condition() or condition()


@pytest.mark.parametrize("earlier", [4, 0])
def test_a_quota_is_tried_again_after_stale_usage(earlier: int) -> None:
    team = plan(load(Source(sections_of("local")))).teams[0].namespace
    cluster, known = Busy(8, [2]), [earlier, earlier]

    def rejected(requested: int) -> str | None:
        return "exceeded quota" if requested + (known.pop() if known else 2) > 8 else None

    assert placement.quota_tried(cast("Cluster", cluster), team, f"requests.{GPU}", 1, rejected) == (
        8,
        2,
        None,
        "exceeded quota",
    )


def test_a_quota_is_tried_again_if_its_usage_changes_meanwhile() -> None:
    team = plan(load(Source(sections_of("local")))).teams[0].namespace
    cluster = Busy(8, [0, 4])
    hard, used, refused, rejection = placement.quota_tried(
        cast("Cluster", cluster), team, f"requests.{GPU}", 1, cluster.rejected
    )
    assert (hard, used, refused, rejection) == (8, 4, None, "exceeded quota")
    assert cluster.tried == [8, 9, 4, 5]
