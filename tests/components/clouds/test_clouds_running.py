"""Running work stays: what each cloud's stacks send to autoscalers, upgrades and repairs of nodes."""

import json
from typing import Any, Final, cast

import pytest
from cloud_stacks import RESERVATION, eks_pool, eks_section, eks_stack, sent
from rendered_stacks import stack_of_repository
from repository import ROOT

STACKS: Final = ("dev-aws", "prod-aws", "prod-azure", "prod-gcp")
GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
POOL: Final = "gcp:container/nodePool:NodePool"
AKS: Final = "azure-native:containerservice:AgentPool"


def judged(kind: str, inputs: Any) -> bool | None:
    """Whether an input ends running pods only where it must; None for one that ends none."""
    if kind == "kubernetes:helm.sh/v3:Release" and inputs["name"] == "cluster-autoscaler":
        flags = inputs["values"]["extraArgs"]
        below = [flags[f"scale-down-{of}utilization-threshold"] for of in ("", "gpu-")]
        # Above 0, or no node is removed; one of 100 time slices is above it.
        return all(0 < limit < 0.01 for limit in below) and flags["ignore-daemonsets-utilization"]
    if kind == GROUP:
        # Not forced: a disruption budget stops it. MINIMAL takes no node more, one at a time.
        return "forceUpdateVersion" not in inputs and inputs["updateConfig"]["maxUnavailable"] == 1
    # Nodes with a maximum run time end by themselves before an upgrade.
    if kind == POOL and inputs["nodeConfig"].get("guestAccelerators") and not inputs["nodeConfig"].get("flexStart"):
        (policy,) = inputs["maintenancePolicies"]
        return policy == {"exclusionUntilEndOfSupports": [{"enabled": True}]}
    if kind == "gcp:container/cluster:Cluster":
        return inputs["clusterAutoscaling"]["autoscalingProfile"] == "BALANCED"
    if kind == AKS and inputs["scaleSetPriority"] == "Regular":
        return inputs["upgradeSettings"]["drainTimeoutInMinutes"] == 60
    return None


@pytest.mark.parametrize("name", STACKS)
def test_autoscalers_and_upgrades_of_a_stack_end_no_running_job(name: str) -> None:
    sent = stack_of_repository(name).rendered.registrations
    verdicts = {made.name: judged(made.type, made.inputs) for made in sent if not made.external_id}
    found = {made: verdict for made, verdict in verdicts.items() if verdict is not None}
    assert found
    assert [made for made, verdict in found.items() if not verdict] == []


@pytest.mark.parametrize(
    ("capacity", "drain"),
    [
        ({}, "24h"),
        ({"capacity": "spot"}, "90s"),
        ({"capacity": {"kind": "capacity-block", "reservation": RESERVATION}, "zones": ["eu-central-1a"]}, "10m"),
    ],
)
@pytest.mark.parametrize("drift", [None, {}])
def test_karpenter_removes_only_empty_nodes_and_drains_no_node_for_ever(capacity: Any, drain: str, drift: Any) -> None:
    cluster = eks_section(autoscaler="karpenter", **({} if drift is None else {"drift": drift}))
    made = sent(eks_stack(cluster, gpu=eks_pool(**capacity)))
    pools = [cast("Any", one.inputs)["spec"] for one in made if one.inputs.get("kind") == "NodePool"]
    assert pools
    drains = {one["template"]["spec"]["terminationGracePeriod"] for one in pools}
    assert drain in drains <= {drain, "24h"}
    for one in pools:
        disruption = one["disruption"]
        assert disruption["consolidationPolicy"] == "WhenEmpty"
        barred = {reason for budget in disruption["budgets"] if budget["nodes"] == "0" for reason in budget["reasons"]}
        assert {"Underutilized", "Drifted"} <= barred


def test_the_page_says_what_is_sent() -> None:
    page = (ROOT / "docs" / "clouds.md").read_text(encoding="utf-8")
    section_ = page.partition("\n## What ends running pods\n")[2].partition("\n## ")[0]
    sent = [made.inputs for name in STACKS for made in stack_of_repository(name).rendered.registrations]
    text = json.dumps(sent, default=str)
    for word in (
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
        "scale-down-gpu-utilization-threshold",
        "exclusionUntilEndOfSupports",
        "BALANCED",
    ):
        assert (word in section_, word in text) == (True, True), word
