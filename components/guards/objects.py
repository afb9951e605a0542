"""Rules for objects without pods that decide what tenants' pods may do: queues, quotas, networks and Namespaces."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.model.plan.guards import FACTS, GuardsPlan

from .expressions import GANG_QUEUE, literal, starts_with
from .policies import ALL, Resources, Rule, exempt

_PLATFORM: Final = (
    "authorizer.group('admissionregistration.k8s.io').resource('validatingadmissionpolicies').check('patch').allowed()"
)
"""Whether the user may change the policies themselves, as the account that deploys the stack may."""
_POD_SECURITY: Final = "pod-security.kubernetes.io/"
_NETWORKS: Final = (
    Resources("cilium.io", ("ciliumnetworkpolicies",), ALL),
    Resources("crd.antrea.io", ("networkpolicies",), ALL),
    Resources("crd.projectcalico.org", ("networkpolicies",), ALL),
    Resources("networking.gke.io", ("fqdnnetworkpolicies",), ALL),
    Resources("networking.k8s.aws", ("applicationnetworkpolicies", "policyendpoints"), ALL),
    Resources("projectcalico.org", ("networkpolicies",), ALL),
)
"""Kinds of network plugins that can allow what a NetworkPolicy denies."""


def object_rules(guards: GuardsPlan) -> Iterator[Rule]:
    """The rules about objects without pods. Who may change the policies is exempt from all of them."""
    conditions = _conditions(guards)
    ours = f"oldObject.metadata.?labels[?{literal(guards.label[0])}].orValue('') == {literal(guards.label[1])}"
    if not guards.members:
        yield queue_objects(guards)
    yield _network(conditions, ours)
    yield _namespace(conditions, ours, guards)


def _conditions(guards: GuardsPlan) -> dict[str, str]:
    return {**exempt(guards, guards.makers), "not-the-platform": f"!{_PLATFORM}"}


def queue_objects(guards: GuardsPlan) -> Rule:
    """Queues and quotas belong to the platform, Workloads to Kueue.

    Users may only stop and resume a Workload, and a LocalQueue if a role lets them change it.
    """
    same = " && ".join(
        f"object.metadata.?{field} == oldObject.metadata.?{field}"
        for field in ("annotations", "labels", "ownerReferences")
    )
    workload, queue = _only_changes("active"), _only_changes("stopPolicy")
    name = "request.resource.resource + (request.?subResource.orValue('') == '' ? '' : '/' + request.subResource)"
    return Rule(
        name="queue-objects",
        resources=(
            Resources("kueue.x-k8s.io", ("localqueues", "localqueues/status", "workloads/status"), ALL),
            Resources("kueue.x-k8s.io", ("workloads",)),
            Resources("", ("limitranges", "resourcequotas", "resourcequotas/status"), ALL),
        ),
        conditions=_conditions(guards),
        variables={
            "resource": name,
            "stopped": (
                f"variables.resource == 'localqueues' && object != null && oldObject != null && {same} && {queue}"
            ),
            "created": (
                "variables.resource == 'workloads' && oldObject == null ? ['creates a Workload, which only Kueue may"
                " create; create a Job with the queue label'] : []"
            ),
            "changed": (
                f"variables.resource == 'workloads' && oldObject != null && !({same} && {workload}) ? ['changes a"
                " Workload, of which only spec.active may be changed; change the Job'] : []"
            ),
            "owned": (
                "variables.resource != 'workloads' && !variables.stopped ? ['changes ' + variables.resource + ', which"
                " belong to the platform; change the team in the stack'] : []"
            ),
        },
        faults=("created", "changed", "owned"),
    )


def _only_changes(field: str) -> str:
    """An expression: whether an update changes nothing of the spec except a field."""
    return " && ".join(
        f"{of}.spec.all(k, k == '{field}' || (k in {other}.spec && object.spec[k] == oldObject.spec[k]))"
        for of, other in (("object", "oldObject"), ("oldObject", "object"))
    )


def _network(conditions: dict[str, str], ours: str) -> Rule:
    """Tenants may not open what the stack closes: beyond the namespace, only the stack allows traffic."""
    own_namespace = "{'kubernetes.io/metadata.name': request.namespace}"
    inside = (
        "has(p.podSelector) && !has(p.ipBlock) && (!has(p.namespaceSelector) || (!has(p.namespaceSelector."
        f"matchExpressions) && p.namespaceSelector.?matchLabels.orValue({{}}) == {own_namespace}))"
    )
    peers = (
        "object.spec.?ingress.orValue([]).map(r, r.?from.orValue([]))"
        " + object.spec.?egress.orValue([]).map(r, r.?to.orValue([]))"
    )
    return Rule(
        name="network",
        resources=(Resources("networking.k8s.io", ("networkpolicies",), ALL), *_NETWORKS),
        conditions=conditions,
        variables={
            "standard": "request.resource.group == 'networking.k8s.io'",
            "foreign": (
                "variables.standard ? [] : ['changes ' + request.resource.resource + '.' + request.resource.group +"
                " ', which only the platform may; use a NetworkPolicy, or network of the team in the stack']"
            ),
            "changed": (
                f"variables.standard && oldObject != null && {ours} ? ['changes a NetworkPolicy of the platform; change"
                " network of the team in the stack'] : []"
            ),
            "opening": (
                f"variables.standard && object != null ? ({peers}).filter(r, size(r) == 0 || !r.all(p, {inside}))"
                ".map(r, 'allows traffic beyond the namespace; set only podSelector in from and to, or change network"
                " of the team in the stack') : []"
            ),
        },
        faults=("foreign", "changed", "opening"),
    )


def _namespace(conditions: dict[str, str], ours: str, guards: GuardsPlan) -> Rule:
    """Who may edit the Namespace of a team may not change what the guards and Pod Security read there."""
    keys = f"(k == {literal(guards.label[0])} || k == '{GANG_QUEUE}' || {starts_with('k', (FACTS, _POD_SECURITY))})"
    changed = " + ".join(
        f"{of}.metadata.?{field}.orValue({{}}).filter(k, {keys} && object.metadata.?{field}[?k] !="
        f" oldObject.metadata.?{field}[?k])"
        for of in ("object", "oldObject")
        for field in ("annotations", "labels")
    )
    return Rule(
        name="namespace",
        resources=(Resources("", ("namespaces", "namespaces/finalize", "namespaces/status"), ("UPDATE",)),),
        conditions={
            **conditions,
            "of-a-team": f"{ours} && !(oldObject.metadata.name in {literal(guards.spared)})",
        },
        variables={
            "changed": (
                f"({changed}).map(k, 'changes ' + k + ' of the Namespace, which belongs to the platform; change the"
                " team in the stack')"
            ),
        },
        faults=("changed",),
        in_namespaces=False,
    )
