"""A team's namespace with its ResourceQuotas, LimitRange, NetworkPolicies and LocalQueue."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import (
    LimitRange,
    LimitRangeItemArgsDict,
    LimitRangeSpecArgsDict,
    Namespace,
    ResourceQuota,
    ResourceQuotaSpecArgsDict,
    ServiceAccount,
)
from pulumi_kubernetes.networking.v1 import (
    NetworkPolicy,
    NetworkPolicyEgressRuleArgsDict,
    NetworkPolicyPeerArgsDict,
    NetworkPolicySpecArgsDict,
)
from pulumi_kubernetes.resource.v1 import ExactDeviceRequestArgsDict, ResourceClaimTemplate

from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.model.catalogue.clouds import NodeEndpoint
from gpu_tenancy.model.manifests.labels import NAME
from gpu_tenancy.model.names import ACCOUNT, INTERFACE_CLASS, NOTEBOOK, NOTEBOOK_PORT
from gpu_tenancy.model.plan import namespaces as planned
from gpu_tenancy.model.plan.fabric import claim_name
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL
from gpu_tenancy.model.plan.servers import Origins

from .conventions import KUEUE, fair_sharing
from .leader_worker_sets import OF_LEADERS
from .multikueue import manager_binding
from .people import team_binding

_NAMESPACE: Final = "kubernetes.io/metadata.name"
_ANY: Final[NetworkPolicyPeerArgsDict] = {"namespace_selector": {}}
"""The pods of all namespaces."""


class TeamNamespace(pulumi.ComponentResource):
    """A namespace that isolates a team from other teams.

    It has ResourceQuotas, a LimitRange, NetworkPolicies, a LocalQueue, the ServiceAccounts of the team's workloads and
    service accounts, and a RoleBinding for each role that people or service accounts have in the team.

    Attributes:
        namespace: everything in it depends on it, so that it is deleted last.
        bounds: objects that must exist before the first pod.

    Example:
        >>> TeamNamespace("ml-research", plan(stack).teams[0].namespace)
    """

    def __init__(self, name: str, team: planned.NamespacePlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamNamespace", name, {}, opts)
        self.namespace = Namespace(
            f"{name}-namespace",
            metadata={"name": team.name, "labels": team.labels, "annotations": team.annotations},
            opts=pulumi.ResourceOptions(parent=self, protect=team.protect),
        )
        self._inside = pulumi.ResourceOptions(parent=self, depends_on=[self.namespace])
        self.bounds: list[pulumi.Resource] = [
            *(self._quota(f"{name}-{quota.name}", team.name, quota) for quota in team.quotas),
            self._limits(f"{name}-containers", team),
            *self._network(name, team),
            *(self._interfaces(f"{name}-{claim_name(number)}", team.name, number) for number in team.interfaces),
            self._service_account(f"{name}-workload", team.name, ACCOUNT, team.pull_secrets),
            self._queue(f"{name}-queue", team),
        ]
        for account in team.service_accounts:
            self._service_account(f"{name}-robot-{account}", team.name, account)
        for binding in team.bindings:
            team_binding(f"{name}-{binding.role}s", team.name, binding, self._inside)
        if team.manager:
            manager_binding(f"{name}-manager", team.name, team.manager, self._inside)

    def _interfaces(self, name: str, namespace: str, number: int) -> ResourceClaimTemplate:
        """What pods claim all interfaces of their node by.

        Kueue counts no claim of all devices (`allocationMode: All`), so their number is named:
        https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/claims.go.
        """
        exactly: ExactDeviceRequestArgsDict = {
            "device_class_name": INTERFACE_CLASS,
            "allocation_mode": "ExactCount",
            "count": number,
        }
        return ResourceClaimTemplate(
            name,
            metadata={"name": claim_name(number), "namespace": namespace},
            spec={"spec": {"devices": {"requests": [{"name": "interfaces", "exactly": exactly}]}}},
            # The API server refuses changes.
            opts=pulumi.ResourceOptions.merge(
                self._inside, pulumi.ResourceOptions(replace_on_changes=["spec"], delete_before_replace=True)
            ),
        )

    def _quota(self, name: str, namespace: str, quota: planned.ResourceQuota) -> ResourceQuota:
        spec: ResourceQuotaSpecArgsDict = {"hard": format_amounts(quota.hard)}
        if quota.scope:
            scope, classes = quota.scope.operator, list(quota.scope.classes)
            spec["scope_selector"] = {
                "match_expressions": [{"scope_name": "PriorityClass", "operator": scope, "values": classes}]
            }
        return ResourceQuota(name, metadata={"name": quota.name, "namespace": namespace}, spec=spec, opts=self._inside)

    def _limits(self, name: str, team: planned.NamespacePlan) -> LimitRange:
        return LimitRange(
            name, metadata={"name": "containers", "namespace": team.name}, spec=_limits(team.limits), opts=self._inside
        )

    def _network(self, name: str, team: planned.NamespacePlan) -> list[NetworkPolicy]:
        return [
            NetworkPolicy(
                f"{name}-{policy}",
                metadata={"name": policy, "namespace": team.name, "labels": dict([TEAM_LABEL])},
                spec=spec,
                opts=self._inside,
            )
            for policy, spec in _policies(team.network).items()
        ]

    def _service_account(
        self, name: str, namespace: str, account: str, pull_secrets: Iterable[str] = ()
    ) -> ServiceAccount:
        """The ServiceAccount of the team's workloads, or one of those for its CI jobs.

        Pods get no token of it: workloads do not call the API server, CI jobs run elsewhere. They pull images with its
        `pull_secrets`.
        """
        return ServiceAccount(
            name,
            metadata={"name": account, "namespace": namespace},
            automount_service_account_token=False,
            image_pull_secrets=[{"name": secret} for secret in pull_secrets] or None,
            opts=self._inside,
        )

    def _queue(self, name: str, team: planned.NamespacePlan) -> CustomResource:
        return CustomResource(
            name,
            api_version=KUEUE,
            kind="LocalQueue",
            metadata={"name": team.name, "namespace": team.name},
            spec={"clusterQueue": team.queue, **fair_sharing(team.usage_weight)},
            opts=self._inside,
        )


def _limits(limits: planned.LimitRange) -> LimitRangeSpecArgsDict:
    container: LimitRangeItemArgsDict = {
        "type": "Container",
        "default": format_amounts(limits.default),
        "default_request": format_amounts(limits.default_request),
    }
    if limits.min:
        container["min"] = format_amounts(limits.min)
    if limits.max:
        container["max"] = format_amounts(limits.max)
    if limits.ratio:
        container["max_limit_request_ratio"] = {r: _ratio(ratio) for r, ratio in limits.ratio.items()}
    items = [container]
    if limits.claim_min is not None or limits.claim_max is not None:
        claim: LimitRangeItemArgsDict = {"type": "PersistentVolumeClaim"}
        if limits.claim_min is not None:
            claim["min"] = {"storage": format_bytes(limits.claim_min)}
        if limits.claim_max is not None:
            claim["max"] = {"storage": format_bytes(limits.claim_max)}
        items.append(claim)
    return {"limits": items}


def _ratio(ratio: Fraction) -> str:
    return str(ratio.numerator) if ratio.denominator == 1 else f"{int(ratio * 1000)}m"


def _to_nodes(endpoints: Iterable[NodeEndpoint], serves: str) -> list[NetworkPolicyEgressRuleArgsDict]:
    """Egress to link-local addresses of nodes, which no selector matches."""
    return [
        {
            "to": [{"ip_block": {"cidr": cidr}} for cidr in endpoint.cidrs],
            "ports": [
                {"port": port, "protocol": protocol} for port in endpoint.ports for protocol in endpoint.protocols
            ],
        }
        for endpoint in endpoints
        if endpoint.serves == serves
    ]


def _policies(network: planned.NetworkRules) -> Mapping[str, NetworkPolicySpecArgsDict]:
    dns: NetworkPolicyEgressRuleArgsDict = {
        "to": [{"namespace_selector": {"match_labels": {_NAMESPACE: "kube-system"}}}],
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
    }
    policies: dict[str, NetworkPolicySpecArgsDict] = {
        "default-deny": {"pod_selector": {}, "policy_types": ["Ingress", "Egress"]},
        "allow-dns": _egress([dns, *_to_nodes(network.node_endpoints, "dns")]),
        # The pods of a distributed job communicate on ports that they choose themselves.
        "allow-team": {
            "pod_selector": {},
            "policy_types": ["Ingress", "Egress"],
            "ingress": [{"from_": [{"pod_selector": {}}]}],
            "egress": [{"to": [{"pod_selector": {}}]}],
        },
    }
    if identity := _to_nodes(network.node_endpoints, "identity"):
        policies["allow-identity"] = _egress(identity)
    if network.egress:
        policies["allow-https"] = _https_to(network.egress)
    if network.data:
        policies["allow-datasets"] = _https_to(network.data)
    if network.from_cluster:
        policies |= {
            f"allow-server-{server}": _ingress(_answering(network, server), port, _ANY)
            for server, port in network.ports.items()
        }
    policies |= {
        f"allow-gateway-{server}": _ingress(_answering(network, server), network.ports[server], *_origins(gateway))
        for server, gateway in network.gateways.items()
    }
    policies |= {
        f"allow-notebook-{notebook}": _ingress({NOTEBOOK: notebook}, NOTEBOOK_PORT, *_origins(gateway))
        for notebook, gateway in network.notebooks.items()
    }
    if network.kuberay:
        # KubeRay submits jobs to the dashboard of the head, and asks it how they are:
        # https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go
        policies["allow-ray-dashboard"] = _ingress({"ray.io/node-type": "head"}, 8265, _pods_of(network.kuberay))
    policies |= {
        f"allow-metrics-{server}": _ingress(_answering(network, server), monitor.port, _pods_of(monitor.namespace))
        for server, monitor in network.monitors.items()
    }
    return policies


def _answering(network: planned.NetworkRules, server: str) -> dict[str, str]:
    """Labels of the pods of a server that answer requests: all, or the leaders of its groups."""
    return {NAME: server, **(OF_LEADERS if server in network.grouped else {})}


def _origins(gateway: Origins) -> Iterator[NetworkPolicyPeerArgsDict]:
    """Where the requests of a Gateway come from: its pods, or outside of the cluster."""
    yield from map(_pods_of, gateway.namespaces)
    for cidr in gateway.cidrs:
        yield {"ip_block": {"cidr": cidr}}


def _https_to(cidrs: Iterable[str]) -> NetworkPolicySpecArgsDict:
    to: list[NetworkPolicyPeerArgsDict] = [{"ip_block": {"cidr": cidr}} for cidr in cidrs]
    return _egress([{"to": to, "ports": [{"port": 443, "protocol": "TCP"}]}])


def _egress(rules: Sequence[NetworkPolicyEgressRuleArgsDict]) -> NetworkPolicySpecArgsDict:
    return {"pod_selector": {}, "policy_types": ["Egress"], "egress": rules}


def _pods_of(namespace: str) -> NetworkPolicyPeerArgsDict:
    return {"namespace_selector": {"match_labels": {_NAMESPACE: namespace}}}


def _ingress(labels: Mapping[str, str], port: int, *peers: NetworkPolicyPeerArgsDict) -> NetworkPolicySpecArgsDict:
    """Connections from peers to one port of pods with these labels."""
    return {
        "pod_selector": {"match_labels": labels},
        "policy_types": ["Ingress"],
        "ingress": [{"from_": list(peers), "ports": [{"port": port, "protocol": "TCP"}]}],
    }
