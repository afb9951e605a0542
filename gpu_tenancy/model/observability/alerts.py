"""Alerts on GPU nodes and on quotas, as groups of a PrometheusRule."""

from typing import Literal, TypedDict

from gpu_tenancy.model.observability.expressions import Expressions


# The keys are those of the CRD of monitoring.coreos.com/v1.
class _Annotations(TypedDict):
    summary: str
    description: str


class _Labels(TypedDict):
    severity: Literal["critical", "warning", "info"]


Rule = TypedDict("Rule", {"alert": str, "expr": str, "for": str, "labels": _Labels, "annotations": _Annotations})


class Group(TypedDict):
    """A group of rules, which Prometheus evaluates in sequence."""

    name: str
    rules: list[Rule]


def groups(on: Expressions) -> tuple[Group, ...]:
    """All alerts: one group for GPU nodes, one for the teams; without GPUs only that for the teams."""
    if on.noun == "CPUs":
        return ({"name": "gpu-tenancy-teams", "rules": _teams(on)},)
    return ({"name": "gpu-tenancy-fleet", "rules": _fleet(on)}, {"name": "gpu-tenancy-teams", "rules": _teams(on)})


def _rule(  # noqa: PLR0913 - the parts of an alert
    alert: str,
    expr: str,
    *,
    lasting: str,
    severity: Literal["critical", "warning", "info"],
    summary: str,
    description: str,
) -> Rule:
    return {
        "alert": alert,
        "expr": expr,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


def _fleet(on: Expressions) -> list[Rule]:
    return [
        _rule(
            "GpuNodeUnhealthy",
            on.unhealthy(),
            lasting="10m",
            severity="critical",
            summary="GPU node {{ $labels.node }} is not ready, or withholds GPUs",
            description="Look at `kubectl describe node {{ $labels.node }}`: where it is Ready with fewer GPUs"
            " allocatable than it has, read the log of the device plugin there and the node's XIDs; where it is not"
            " Ready, drain and replace it. Queues go on admitting for GPUs that are not there.",
        ),
        _rule(
            "GpuXidError",
            on.broken_gpus,
            lasting="0m",
            severity="critical",
            summary="GPU {{ $labels.gpu }} of {{ $labels.node }} reported XID {{ $value }}",
            description="Look XID {{ $value }} up in NVIDIA's list (https://docs.nvidia.com/deploy/xid-errors/)."
            " Cordon the node, let its jobs end or be evicted, reset the GPU ({{ $labels.UUID }}) or reboot; if the"
            " XID comes back, replace the node. The value stays until the driver is loaded anew.",
        ),
    ]


def _teams(on: Expressions) -> list[Rule]:
    queue, what = "{{ $labels.cluster_queue }}", "{{ $labels.resource }} of {{ $labels.flavor }}"
    noun, section = on.noun, "gpus.{{ $labels.flavor }}" if on.noun == "GPUs" else "quota.{{ $labels.flavor }}.cpu"
    server = "{{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }}"
    return [
        _rule(
            "GuaranteeNotHonoured",
            on.broken_promise,
            lasting="10m",
            severity="critical",
            summary=f"{queue} waits for {noun} with only {{{{ $value }}}} {what}, less than it is guaranteed",
            description=f"Read why its first workload waits: `kubectl describe workloads -n {queue}`. Borrowers that"
            " are not preempted: check reclaimWithinCohort and Kueue's log. Nodes that are not there: check the"
            " autoscaler and the pool. A workload larger than what is left of the guarantee waits rightly: Kueue says"
            f" how many {noun} are waited for, not by how large a workload.",
        ),
        _rule(
            "GuaranteeInDoubt",
            on.doubted_promise,
            lasting="30m",
            severity="info",
            summary=f"{queue} waits for {noun} and has only {{{{ $value }}}} {what}, less than it is guaranteed",
            description=f"Another flavor of {queue} is used up, and Kueue's metrics do not say which one is waited for."
            f" `kubectl describe workloads -n {queue}`: one that asks for the other flavor waits rightly; one that asks"
            " for {{ $labels.flavor }} waits as in GuaranteeNotHonoured.",
        ),
        _rule(
            "QueueStuck",
            on.stuck,
            lasting="30m",
            severity="warning",
            summary=f"{{{{ $value }}}} workloads wait in {queue}, none runs and none was admitted for an hour",
            description=f"`kubectl describe clusterqueue {queue}`: is it Active? `kubectl describe workloads"
            f" -n {queue}`: a resource that no flavor has, a namespace that the queue does not take, or a check"
            " that never ends are never admitted by waiting. Where nothing is said at all, look whether Kueue runs.",
        ),
        _rule(
            "TeamAtLimit",
            on.at_limit,
            lasting="24h",
            severity="info",
            summary=f"{queue} has used all {{{{ $value }}}} {what} that it may for a day",
            description="Look at dashboard Quota: what it waits for, and what others leave idle. Where it should have"
            f" more, raise teams.{queue}.{section}.limit in the stack, or the pool's nodes.max.",
        ),
        _rule(
            "AutoscalerAtMaximum",
            on.scaled_out,
            lasting="15m",
            severity="warning",
            summary=f"{server} has all {{{{ $value }}}} replicas that it may have",
            description="Compare latency with its target in dashboard Serving. Where it is missed, raise the server's"
            " replicas.max in the stack, and the team's guarantee with it: pods beyond the guarantee may be pushed"
            " off. Where it is met, nothing is wrong.",
        ),
    ]
