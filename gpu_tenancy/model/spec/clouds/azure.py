"""AKS: https://learn.microsoft.com/azure/aks/."""

from ipaddress import ip_network
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gpu_tenancy.model.spec.base import Cidr, refuse
from gpu_tenancy.model.spec.clouds.base import CloudCluster, Creation

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
ResourceId: TypeAlias = Annotated[
    str, StringConstraints(pattern=r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/.+$")
]


def _room_for_services(cidr: str) -> str:
    if ip_network(cidr, strict=False).num_addresses < _DNS_ADDRESS + 2:
        raise refuse("has no tenth address, which is the cluster's name server's", "write a wider one, such as a /16")
    return cidr


_DNS_ADDRESS = 10
ServiceCidr: TypeAlias = Annotated[Cidr, AfterValidator(_room_for_services)]


class AksCreation(Creation):
    """An AKS cluster to be made: secrets encrypted, audit logs on, workload identity, no local accounts."""

    secrets_key: KeyUrl
    """Key of a Key Vault, with its version, that encrypts secrets: `https://<vault>.vault.azure.net/keys/<key>/<version>`.
    The vault grants access by Azure's roles, is in the cluster's tenant, and open to public networks: AKS reaches one
    behind a firewall only with an API server in a subnet of its own."""
    vault: ResourceId
    """Resource id of that Key Vault."""
    logs: ResourceId
    """Resource id of the Log Analytics workspace that takes the audit logs."""
    disk_encryption_set: ResourceId | None = None
    """Disk encryption set with a key of your own, for the disks of all nodes; left out, the platform's key encrypts
    disks. The hosts' caches are encrypted in either case."""
    tenant: Uuid
    """Entra tenant whose users and groups the cluster knows."""
    admins: Annotated[list[Uuid], Field(min_length=1)]
    """Object ids of the Entra groups that administer the cluster. There is no local account beside them, so whoever
    deploys the stack must be in one of them."""
    pods: Cidr = "10.244.0.0/16"
    """Addresses of pods, an overlay's own: no network that the cluster talks to has them."""
    services: ServiceCidr = "10.0.0.0/16"
    """Addresses of services; no subnet's, and no part of `pods`."""
    egress: Literal["load-balancer", "nat-gateway", "routes"] = "load-balancer"
    """How nodes reach the internet: a load balancer of the cluster's own, with a public address; a NAT gateway that the
    subnet has; or the subnet's routes, such as to a firewall."""

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if ip_network(self.pods, strict=False).overlaps(ip_network(self.services, strict=False)):
            raise refuse(f"services {self.services} and pods {self.pods} overlap", "write networks that are apart")
        return self

    @property
    def name_server(self) -> str:
        """Address of the cluster's name server: the tenth of its services'."""
        return str(ip_network(self.services, strict=False)[_DNS_ADDRESS])


class AzureCluster(CloudCluster):
    """An AKS cluster. Its network is given, not made."""

    cloud: Literal["azure"]
    """`azure`: AKS."""
    subscription: Uuid
    """Subscription of the cluster, whichever one the Azure CLI is set to."""
    resource_group: Annotated[str, StringConstraints(pattern=r"^[\w().-]{0,89}[\w()-]$")]
    """Resource group of the cluster."""
    location: Annotated[str, StringConstraints(pattern=r"^[a-z]+\d?$")]
    """Location such as `eastus2`."""
    subnet: SubnetId
    """Resource id of the nodes' subnet."""
    create: AksCreation | None = None
    """What the cluster is like that is made here; left out, it exists under its name, with Entra integration."""

    @property
    def creation(self) -> AksCreation | None:
        """What the cluster is like that is made here."""
        return self.create

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Azure counts its zones in each location."""
        return None if zone in {"1", "2", "3"} else ("is no zone of Azure", 'write "1", "2" or "3"')
