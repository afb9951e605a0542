"""A team's namespace with its ResourceQuotas, LimitRange, NetworkPolicies and LocalQueue."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pulumi
from pulumi import ResourceOptions
from pulumi_kubernetes.core import v1 as core
from pulumi_kubernetes.meta.v1 import ObjectMetaArgsDict
from pulumi_kubernetes.networking import v1 as networking
from pulumi_kubernetes.resource.v1 import ExactDeviceRequestArgsDict, ResourceClaimTemplate

from gpu_tenancy.base.quantity import format_amounts, format_bytes
from gpu_tenancy.model.catalogue.clouds import NodeEndpoint
from gpu_tenancy.model.manifests.pods import NAME
from gpu_tenancy.model.names import ACCOUNT, INTERFACE_CLASS, NOTEBOOK, NOTEBOOK_PORT
from gpu_tenancy.model.plan import namespaces as planned
from gpu_tenancy.model.plan.fabric import claim_name
from gpu_tenancy.model.plan.operators.kueue import CHECK
from gpu_tenancy.model.plan.people import PREFIX
from gpu_tenancy.model.resolve import ResolvedServer
from gpu_tenancy.model.spec.serving import GatewayRoute

from .objects import LABELS, Component, Options, fair_sharing, kueue_object, role_binding
from .queues import WRITES
from .serving import OF_LEADERS

_NAMESPACE: Final = "kubernetes.io/metadata.name"
_ANY: Final[networking.NetworkPolicyPeerArgsDict] = {"namespace_selector": {}}  # the pods of all namespaces


class TeamNamespace(Component):
    """A namespace that isolates a team from other teams.

    It has ResourceQuotas, a LimitRange, NetworkPolicies, a LocalQueue, the ServiceAccounts of workloads and service
    accounts, and a RoleBinding for each role in the team. All of it depends on `namespace`, which is deleted last;
    `bounds` are the objects that must exist before the first pod.
    """

    def __init__(self, name: str, team: planned.NamespacePlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:TeamNamespace", name, opts)
        self.namespace = core.Namespace(
            f"{name}-namespace",
            metadata={"name": team.name, "labels": team.labels, "annotations": team.annotations},
            opts=ResourceOptions(parent=self, protect=team.protect),
        )
        self._team, self._inside = team.name, self.after(self.namespace)
        local_queue = {"clusterQueue": team.queue, **fair_sharing(team.usage_weight)}
        self.bounds: list[pulumi.Resource] = [
            *(self._quota(f"{name}-{quota.name}", quota) for quota in team.quotas),
            core.LimitRange(
                f"{name}-containers", metadata=self._named("containers"), spec=_limits(team.limits), opts=self._inside
            ),
            *(
                networking.NetworkPolicy(
                    f"{name}-{policy}", metadata={**self._named(policy), "labels": LABELS}, spec=spec, opts=self._inside
                )
                for policy, spec in _policies(team).items()
            ),
            *(self._interfaces(f"{name}-{claim_name(number)}", number) for number in team.interfaces),
            self._service_account(f"{name}-workload", ACCOUNT, team.pull_secrets),
            kueue_object(
                f"{name}-queue", "LocalQueue", self._named(team.name), local_queue, self._keeping("spec.clusterQueue")
            ),
        ]
        for account in team.team.service_accounts:
            self._service_account(f"{name}-robot-{account}", account)
        for binding in team.bindings:
            role, place = f"{PREFIX}{binding.role}", (team.name, f"{PREFIX}{binding.role}s")
            role_binding(f"{name}-{binding.role}s", place, role, binding.subjects, self._inside)
        if team.manager:  # which creates workloads here
            role_binding(f"{name}-manager", (team.name, CHECK), WRITES, [team.manager.account], self._inside)

    def _named(self, name: str) -> ObjectMetaArgsDict:
        return {"name": name, "namespace": self._team}

    def _keeping(self, field: str) -> ResourceOptions:
        """Options of an object with a field whose changes the API server refuses."""
        replaced = ResourceOptions(replace_on_changes=[field], delete_before_replace=True)
        return ResourceOptions.merge(self._inside, replaced)

    def _interfaces(self, name: str, number: int) -> ResourceClaimTemplate:
        """The claim of all interfaces of a node, by number: Kueue counts no claim with `allocationMode: All`."""
        # https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/dra/claims.go.
        exactly: ExactDeviceRequestArgsDict = {
            "device_class_name": INTERFACE_CLASS,
            "allocation_mode": "ExactCount",
            "count": number,
        }
        return ResourceClaimTemplate(
            name,
            metadata=self._named(claim_name(number)),
            spec={"spec": {"devices": {"requests": [{"name": "interfaces", "exactly": exactly}]}}},
            opts=self._keeping("spec"),
        )

    def _quota(self, name: str, quota: planned.ResourceQuota) -> core.ResourceQuota:
        spec: core.ResourceQuotaSpecArgsDict = {"hard": format_amounts(quota.hard)}
        if quota.scope:
            scope, classes = quota.scope[0], list(quota.scope[1])
            spec["scope_selector"] = {
                "match_expressions": [{"scope_name": "PriorityClass", "operator": scope, "values": classes}]
            }
        return core.ResourceQuota(name, metadata=self._named(quota.name), spec=spec, opts=self._inside)

    def _service_account(self, name: str, account: str, pull_secrets: Iterable[str] = ()) -> core.ServiceAccount:
        """The account of the team's workloads, or of a CI job; neither needs a token in the cluster."""
        return core.ServiceAccount(
            name,
            metadata=self._named(account),
            automount_service_account_token=False,
            image_pull_secrets=[{"name": secret} for secret in pull_secrets] or None,
            opts=self._inside,
        )


def _limits(limits: planned.LimitRange) -> core.LimitRangeSpecArgsDict:
    container: core.LimitRangeItemArgsDict = {
        "type": "Container",
        "default": format_amounts(limits.default),
        "default_request": format_amounts(limits.default_request),
    }
    if limits.min:
        container["min"] = format_amounts(limits.min)
    if limits.max:
        container["max"] = format_amounts(limits.max)
    if limits.ratio:
        container["max_limit_request_ratio"] = {
            resource: str(ratio.numerator) if ratio.denominator == 1 else f"{int(ratio * 1000)}m"
            for resource, ratio in limits.ratio.items()
        }
    claim: core.LimitRangeItemArgsDict = {"type": "PersistentVolumeClaim"}
    if limits.claim_min is not None:
        claim["min"] = {"storage": format_bytes(limits.claim_min)}
    if limits.claim_max is not None:
        claim["max"] = {"storage": format_bytes(limits.claim_max)}
    return {"limits": [container, claim] if len(claim) > 1 else [container]}


def _to_nodes(endpoints: Iterable[NodeEndpoint], serves: str) -> list[networking.NetworkPolicyEgressRuleArgsDict]:
    """Egress to link-local addresses of nodes, which no selector matches."""
    return [
        {
            "to": _blocks(endpoint.cidrs),
            "ports": [
                {"port": port, "protocol": protocol} for port in endpoint.ports for protocol in endpoint.protocols
            ],
        }
        for endpoint in endpoints
        if endpoint.serves == serves
    ]


def _policies(team: planned.NamespacePlan) -> Mapping[str, networking.NetworkPolicySpecArgsDict]:
    spec, servers = team.team, team.team.serving
    dns: networking.NetworkPolicyEgressRuleArgsDict = {
        "to": [_pods_of("kube-system")],
        "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
    }
    policies: dict[str, networking.NetworkPolicySpecArgsDict] = {
        "default-deny": {"pod_selector": {}, "policy_types": ["Ingress", "Egress"]},
        "allow-dns": _egress([dns, *_to_nodes(team.node_endpoints, "dns")]),
        # The pods of a distributed job communicate on ports that they choose themselves.
        "allow-team": {
            "pod_selector": {},
            "policy_types": ["Ingress", "Egress"],
            "ingress": [{"from_": [{"pod_selector": {}}]}],
            "egress": [{"to": [{"pod_selector": {}}]}],
        },
    }
    if identity := _to_nodes(team.node_endpoints, "identity"):
        policies["allow-identity"] = _egress(identity)
    for policy, cidrs in (("allow-https", spec.network.egress), ("allow-datasets", team.data)):
        if cidrs:
            policies[policy] = _egress([{"to": _blocks(cidrs), "ports": [{"port": 443, "protocol": "TCP"}]}])

    for name, server in servers.items() if spec.network.clients == "cluster" else ():
        policies[f"allow-server-{name}"] = _answering(server, server.port, _ANY)
    for name, server in servers.items():
        if server.exposure:
            policies[f"allow-gateway-{name}"] = _answering(server, server.port, *_origins(server.exposure))
    for notebook, gateway in team.notebooks.items():
        policies[f"allow-notebook-{notebook}"] = _ingress({NOTEBOOK: notebook}, NOTEBOOK_PORT, *_origins(gateway))
    if team.kuberay:
        # KubeRay submits jobs to the dashboard of the head, and asks it how they are:
        # https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go
        policies["allow-ray-dashboard"] = _ingress({"ray.io/node-type": "head"}, 8265, _pods_of(team.kuberay))
    for name, monitor in team.monitors.items():
        policies[f"allow-metrics-{name}"] = _answering(servers[name], monitor.port, _pods_of(monitor.namespace))
    return policies


def _origins(gateway: GatewayRoute) -> list[networking.NetworkPolicyPeerArgsDict]:
    """The origins of a Gateway's requests: its pods, or outside of the cluster."""
    return [*map(_pods_of, gateway.namespaces), *_blocks(gateway.from_cidrs)]


def _blocks(cidrs: Iterable[str]) -> list[networking.NetworkPolicyPeerArgsDict]:
    return [{"ip_block": {"cidr": cidr}} for cidr in cidrs]


def _egress(rules: Sequence[networking.NetworkPolicyEgressRuleArgsDict]) -> networking.NetworkPolicySpecArgsDict:
    return {"pod_selector": {}, "policy_types": ["Egress"], "egress": rules}


def _pods_of(namespace: str) -> networking.NetworkPolicyPeerArgsDict:
    return {"namespace_selector": {"match_labels": {_NAMESPACE: namespace}}}


def _answering(
    server: ResolvedServer, port: int, *peers: networking.NetworkPolicyPeerArgsDict
) -> networking.NetworkPolicySpecArgsDict:
    """Request traffic to the pods of a server: to all, or to the leaders of its groups."""
    return _ingress({NAME: server.name, **(OF_LEADERS if server.grouped else {})}, port, *peers)


def _ingress(
    labels: Mapping[str, str], port: int, *peers: networking.NetworkPolicyPeerArgsDict
) -> networking.NetworkPolicySpecArgsDict:
    return {
        "pod_selector": {"match_labels": labels},
        "policy_types": ["Ingress"],
        "ingress": [{"from_": list(peers), "ports": [{"port": port, "protocol": "TCP"}]}],
    }
