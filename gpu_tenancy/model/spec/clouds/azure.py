"""AKS: https://learn.microsoft.com/azure/aks/."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from gpu_tenancy.model.fields import Cidr, Name, refuse
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation, Exclusion, Login, Maintenance, late_reader
from gpu_tenancy.model.spec.people import Person

Uuid: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
]
SubnetId: TypeAlias = Annotated[
    str,
    StringConstraints(
        pattern=r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$"
    ),
]
KeyUrl: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^https://[a-z0-9-]+\.vault\.azure\.net/keys/[\w-]+/\w+$")
]
Issuer: TypeAlias = Annotated[str, StringConstraints(pattern=r"^https://[a-z0-9.-]+(/[\w./-]+)?$")]
ResourceId: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/.+$")
]


def _room_for_services(cidr: str) -> str:
    if ip_network(cidr, strict=False).num_addresses < _DNS_ADDRESS + 2:
        raise refuse("is too small: the DNS service needs its tenth address", "use a larger network, such as a /16")
    return cidr


_DNS_ADDRESS = 10
ServiceCidr: TypeAlias = Annotated[Cidr, AfterValidator(_room_for_services)]

_WEEK = 7
USER_ROLE: Final = "Azure Kubernetes Service Cluster User Role"
"""The built-in role with which people list a cluster's user credentials:
https://learn.microsoft.com/azure/aks/control-kubeconfig-access."""

BLOB_ROLES: Final = {False: "Storage Blob Data Reader", True: "Storage Blob Data Contributor"}
"""Built-in roles on blobs, by whether they write:
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/storage."""
CLIENT_ID_OF: Final = "client-id-of-"
"""Start of a placeholder in a plan for the client ID of a team's identity, which is known once it is created."""
OBJECT_ID_OF: Final = "object-id-of-"
"""Start of the name of a service account's user in a plan: its object ID is known once it is created."""

_BLOBS: Final = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_WRITING: Final = ("write", "add/action", "delete", "move/action")
"""Data actions of the role of writers, besides reading."""


def blob_condition(prefix: str, *, writes: bool) -> str:
    """The condition of a role assignment that restricts it to a folder: to read and list, and to write if it writes.

    A listing must name the folder, without slashes around it or with one behind it, as blobfuse2 does when it mounts.
    https://learn.microsoft.com/azure/storage/blobs/storage-auth-abac-examples
    """
    listing = f"ActionMatches{{'{_BLOBS}/read'}} AND SubOperationMatches{{'Blob.List'}}"
    single = [f"ActionMatches{{'{_BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}}"]
    single += [f"ActionMatches{{'{_BLOBS}/{action}'}}" for action in _WRITING] if writes else []
    others = " AND ".join(f"!({action})" for action in single)
    named, stored = (
        f"{place} StringEquals '{prefix}' OR {place} StringStartsWith '{prefix}/'"
        for place in (f"@Request[{_BLOBS}:prefix]", f"@Resource[{_BLOBS}:path]")
    )
    return f"((!({listing})) OR ({named})) AND (({others}) OR ({stored}))"


def _options(resource: str, name: str = "name") -> str:
    """Options of the Azure CLI for a new resource, from its ID."""
    _, _, subscription, _, group, *_, own = resource.split("/")
    return f"--subscription {subscription} --resource-group {group} --{name} {own}"


class AksMaintenance(Maintenance):
    """When AKS upgrades the control plane, its add-ons and the nodes."""

    exclusions: dict[Name, Exclusion] = {}
    """Days without upgrades, by a name."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """AKS has daily and weekly schedules: https://learn.microsoft.com/azure/aks/planned-maintenance."""
        yield from super()._conflicts()
        if 1 < len(self.days) < _WEEK:
            rule = f"lists {len(self.days)} days, but a window of AKS is on one day of the week or on all"
            yield rule, f"set one day, such as {self.days[0]}, or remove days"

    @property
    def day(self) -> str | None:
        """The day of the week; None for every day."""
        return self.days[0] if len(self.days) == 1 else None


class AksCreation(Creation):
    """An AKS cluster to create: with encrypted secrets, audit logs and workload identity, without local accounts."""

    secrets_key: KeyUrl
    """Key of a Key Vault, with its version, that encrypts secrets:
    `https://<vault>.vault.azure.net/keys/<key>/<version>`. The vault must use Azure RBAC, be in the cluster's tenant,
    and allow public network access: AKS reaches a vault behind a firewall only if the API server has its own subnet."""
    vault: ResourceId
    """Resource ID of that Key Vault."""
    logs: ResourceId
    """Resource ID of the Log Analytics workspace for the audit logs."""
    disk_encryption_set: ResourceId | None = None
    """Disk encryption set with your own key, for the disks of all nodes; default: the platform's key. Host caches are
    always encrypted."""
    tenant: Uuid
    """ID of the Entra tenant of the cluster's users and groups."""
    admins: Annotated[list[Uuid], Field(min_length=1)]
    """Object IDs of the Entra groups that administer the cluster. There are no local accounts, so the identity that
    deploys must be in one of them."""
    pods: Cidr = "10.244.0.0/16"
    """CIDR of pods (overlay network); must not overlap with networks that the cluster connects to."""
    services: ServiceCidr = "10.0.0.0/16"
    """CIDR of services; must not overlap with a subnet or with `pods`."""
    egress: Literal["load-balancer", "nat-gateway", "routes"] = "load-balancer"
    """How nodes reach the internet: a load balancer with a public address; the subnet's NAT gateway, which a created
    network gets; or the subnet's routes, such as to a firewall."""

    gpu_upgrades: Literal["on-demand", "windows"] = "on-demand"
    """When AKS patches Kubernetes and the nodes of a cluster with GPU pools. `on-demand`: not by itself; since AKS has
    one setting for all pools, you also upgrade the control plane and pools without GPUs. `windows`: in the windows of
    `maintenance`, which ends running pods."""
    maintenance: AksMaintenance = AksMaintenance()
    """When AKS upgrades the cluster and its nodes; default: every day from 03:00 to 07:00 UTC, and the weekly release
    of AKS at any time."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if ip_network(self.pods, strict=False).overlaps(ip_network(self.services, strict=False)):
            yield f"services {self.services} and pods {self.pods} overlap", "change one of them"

    @property
    def name_server(self) -> str:
        """Address of the cluster's DNS service: the tenth of `services`."""
        return str(ip_network(self.services, strict=False)[_DNS_ADDRESS])


class AzureCluster(CloudCluster):
    """An AKS cluster, in an existing network or in one that is created with it."""

    _LONGEST_IDENTITY: ClassVar[int] = 120

    cloud: Literal["azure"]
    """`azure`: AKS."""
    subscription: Uuid
    """Subscription of the cluster; the Azure CLI's current subscription is ignored."""
    resource_group: Annotated[str, StringConstraints(pattern=r"^[\w().-]{0,89}[\w()-]$")]
    """Resource group of the cluster."""
    location: Annotated[str, StringConstraints(pattern=r"^[a-z]+\d?$")]
    """Location such as `eastus2`."""
    subnet: SubnetId | None = None
    """Resource ID of the nodes' subnet; default: a network with a subnet is created in the resource group, named after
    the cluster."""
    identity_provider: Issuer | None = None
    """URL of the issuer of the CI system's tokens, with which service accounts with `subject` log in, such as
    `https://token.actions.githubusercontent.com`."""
    autoscaler_tags: bool = False
    """Whether tags of pools say what nodes of an empty pool have: InfiniBand, AMD GPUs, shared GPUs. The open-source
    autoscaler reads such tags; AKS does not document it: see whether an empty pool grows."""
    create: AksCreation | None = None
    """Settings of the cluster to create; default: use the existing cluster with this name, with Entra integration."""

    @property
    def autoscaler_hint(self) -> str | None:
        """Tags of the scale set: https://github.com/kubernetes/autoscaler/tree/master/cluster-autoscaler/cloudprovider/azure.

        AKS's part: https://learn.microsoft.com/azure/aks/use-tags.
        """
        return None if self.autoscaler_tags else ", or test cluster.autoscalerTags: true"

    @property
    def makes_network(self) -> bool:
        """Whether it names no subnet."""
        return self.subnet is None

    @property
    def ways_out(self) -> dict[str, int]:
        """The load balancer of the cluster, or a NAT gateway, unless the subnet has routes."""
        egress = self.create.egress if self.create else "routes"
        return {} if egress == "routes" else {f"azure-{egress}": 1}

    @property
    def _group_id(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.resource_group}"

    @property
    def resource_id(self) -> str:
        """Resource ID of the cluster."""
        return f"{self._group_id}/providers/Microsoft.ContainerService/managedClusters/{self.name}"

    def container_id(self, account: str, container: str, account_id: str | None) -> str:
        """Resource ID of a container; the ID of its account is None for one in the resource group of the cluster."""
        whole = account_id or f"{self._group_id}/providers/Microsoft.Storage/storageAccounts/{account}"
        return f"{whole}/blobServices/default/containers/{container}"

    def login(self, who: Person) -> Login | None:
        """Role assignments have object IDs, so the stack cannot assign the role to a user whom it knows by name."""
        if who.kind == "serviceaccount":
            return None
        assignee = f"--assignee {who.name}"
        if self.is_late(who.name):
            place = f"--subscription {self.subscription} --resource-group {self.resource_group}"
            shown = f"az identity show {place} --name {who.name.removeprefix(OBJECT_ID_OF)} --query principalId -o tsv"
            assignee = f"--assignee-object-id $({shown}) --assignee-principal-type ServicePrincipal"
        command = f'az role assignment create {assignee} --role "{USER_ROLE}" --scope {self.resource_id}'
        return Login(USER_ROLE, self.create is not None and "@" not in who.name, command)

    @property
    def issuer(self) -> str | None:
        """Issuer of the tokens of service accounts."""
        return self.identity_provider.removeprefix("https://") if self.identity_provider else None

    def reader_annotations(self, team: str) -> dict[str, str]:
        """The managed identity as which the ServiceAccount logs in, by its client ID and tenant.

        https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html
        """
        late = late_reader(team)
        return {"azure.workload.identity/client-id": late, "azure.workload.identity/tenant-id": f"{late}.tenant"}

    def pull_rights(self, registries: Sequence[str]) -> Iterator[str]:
        """Nodes pull from registries by a role of the cluster's kubelet identity."""
        place = f"--resource-group {self.resource_group} --name {self.name}"
        for registry in registries:
            given = "made here" if self.create else f"run `az aks update {place} --attach-acr {registry}`"
            yield f"Nodes pull from {registry.rpartition('/')[2]}: {given}"

    def prerequisites(self) -> Iterator[str]:
        """Of a created cluster: https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption."""
        if (created := self.create) is None:
            return
        group, at = self.resource_group, f"--location {self.location}"
        vault, key = created.vault.rpartition("/")[2], created.secrets_key.split("/")[-2]
        yield f"resource group {group}: az group create --subscription {self.subscription} --name {group} {at}"
        yield f"vault {vault}: az keyvault create {_options(created.vault)} {at} --enable-rbac-authorization true"
        yield f"key {key}: az keyvault key create --vault-name {vault} --name {key} --query key.kid"
        workspace = _options(created.logs, "workspace-name")
        yield f"workspace: az monitor log-analytics workspace create {workspace} {at}"
        yield f"tenant {created.tenant}: az account show --subscription {self.subscription} --query tenantId"
        yield from (f"group {admin}: az ad group show --group {admin}" for admin in created.admins)

    def account_identity(self, team: str, name: str) -> Person | None:
        """The managed identity of a service account, which a cluster knows as a user with its object ID."""
        if self.identity_provider is None:
            return None
        return Person("user", f"{OBJECT_ID_OF}{self.identity_name(team, name)}")

    def is_late(self, user: str) -> bool:
        """Entra decides object IDs and client IDs."""
        return user.startswith((OBJECT_ID_OF, CLIENT_ID_OF))

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        yield from super()._conflicts()
        if self.subnet is not None:
            return
        if self.create is None:
            yield "has no subnet", "set subnet to the resource ID of the nodes' subnet"
            return
        if self.create.egress == "routes":
            rule = "sets create.egress: routes, but a created network has no routes"
            yield rule, "set egress: nat-gateway, or subnet to one of an existing network"
        created = self.create.network_addresses
        for cidr in (self.create.pods, self.create.services):
            other = ip_network(cidr, strict=False)
            if other.version == created.version and created.overlaps(other):
                yield f"create.addresses {created} overlaps with {cidr}", "change one of them"

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Azure numbers the zones of each location."""
        return None if zone in {"1", "2", "3"} else ("is not an Azure zone", 'set "1", "2" or "3"')
