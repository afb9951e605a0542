"""AKS clusters and node pools.

https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters (and its agentPools). Azure
accepts names of VM sizes and values of enumerations in any case.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import ClassVar

from typing_extensions import override

from cloud_rules.pools import Cloud, Cluster, DiskRequirements, Endpoint, Machine, NodePool, Nodes, Taint
from cloud_rules.tokens import ignores
from rule_engine import Resource


class AksPool(NodePool, Nodes):
    """An AKS node pool."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "azure"
    writes: ClassVar = {
        "maximum": "maxCount",
        "minimum": "minCount",
        "machines": "vmSize",
        "spot": "scaleSetPriority: Regular",
        "taint": "nodeTaints: ['nvidia.com/gpu=present:NoSchedule']",
        "size": "count",
    }

    @property
    @override
    def minimum(self) -> Decimal:
        return self.view.number(self._bound("minCount")) or Decimal(0)

    @property
    @override
    def maximum(self) -> Decimal | None:
        maximum = self.view.number(self._bound("maxCount"))
        return Decimal(1) if maximum is None and not self._scaled else maximum

    @property
    @override
    def spot(self) -> bool:
        return self.view.text("scaleSetPriority").lower() == "spot"

    @property
    @override
    def taints(self) -> list[Taint]:
        parts = [taint.rpartition(":") for taint in self.view.texts("nodeTaints")]
        return [Taint(key.split("=", 1)[0], effect) for key, _, effect in parts]

    @property
    @override
    def for_system(self) -> bool:
        return self.view.text("mode").lower() == "system"

    @property
    @override
    def fixed_size(self) -> str:
        path = self.writes["size"]
        if not self._scaled or not self.view.has(path):
            return ""
        full_path = ".".join((*self.view.path, path)).replace(".0.", "[0].")
        return "" if ignores(self.resource, full_path) or ignores(self.resource, path) else path

    @property
    def _scaled(self) -> bool:
        return self.view.flag("enableAutoScaling")

    @override
    def machines(self) -> list[Machine]:
        size = self.view.at("vmSize")
        return [Machine(size.text(), size.path)] if size.value is not None else []

    @override
    def metadata(self, hops: int) -> Iterator[str]:
        yield from ()  # Azure has no setting for it

    @override
    def disks(self, required: DiskRequirements) -> Iterator[str]:
        if required.host and not self.view.flag("enableEncryptionAtHost"):
            yield "host encryption of disks is disabled; set enableEncryptionAtHost: true"

    @override
    def addresses(self) -> Iterator[str]:
        if self.view.flag("enableNodePublicIP"):
            yield "assigns public addresses to nodes; set enableNodePublicIP: false"

    @override
    def integrity(self, *, boot: bool) -> Iterator[str]:
        for key in ("enableSecureBoot", "enableVTPM"):
            if boot and not self.view.flag("securityProfile", key):
                yield f"{key} is disabled; set securityProfile.{key}: true"

    def _bound(self, key: str) -> str:
        return key if self._scaled else "count"


class AksCluster(Cluster):
    """An AKS cluster."""

    __slots__ = ()
    cloud: ClassVar[Cloud] = "azure"

    @property
    @override
    def endpoint(self) -> Endpoint:
        access = self.view.at("apiServerAccessProfile")
        private = access.flag("enablePrivateCluster") or self.view.text("publicNetworkAccess") == "Disabled"
        networks = [] if private else access.items("authorizedIPRanges")
        write = (
            "apiServerAccessProfile.enablePrivateCluster: true, or list the required networks under"
            " apiServerAccessProfile.authorizedIPRanges"
        )
        return Endpoint(not private, networks or None, write)

    @override
    def name(self) -> str:
        return self.view.text("resourceName")

    @override
    def identity(self) -> Iterator[str]:
        if not self.view.flag("oidcIssuerProfile", "enabled"):
            yield "the OIDC issuer is disabled; set oidcIssuerProfile.enabled: true"
        if not self.view.flag("securityProfile", "workloadIdentity", "enabled"):
            yield "workload identity is disabled; set securityProfile.workloadIdentity.enabled: true"

    @override
    def credentials(self) -> Iterator[str]:
        if not self.view.flag("disableLocalAccounts"):
            yield "local accounts are enabled, whose certificates identify no user; set disableLocalAccounts: true"


def pools(resource: Resource) -> Iterator[AksPool]:
    """The pools of a resource: a pool itself, or a cluster with inline pools."""
    if resource.kind == "AgentPool":
        yield AksPool(resource, resource.props)
        return
    for profile in resource.props.items("agentPoolProfiles"):
        yield AksPool(resource, profile, f"node pool {profile.text('name') or profile.path[-1]}")
