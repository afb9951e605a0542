"""Common keys of the cluster sections."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints

from gpu_tenancy.model.fields import Cidr, Date, Section, refuse
from gpu_tenancy.model.spec.operators import Adoptables
from gpu_tenancy.model.spec.people import Person
from gpu_tenancy.model.spec.pools import Nodes

Tag: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z]?[-_a-z0-9]{0,62}$")]
"""Key or value of a tag that every cloud accepts; GCP's rules for labels are the strictest."""

KubernetesVersion: TypeAlias = Annotated[str, StringConstraints(pattern=r"^1\.\d{2}$")]
"""Minor version such as `1.35`; the cloud manages patch versions."""


def _not_everyone(cidr: str) -> str:
    if ip_network(cidr, strict=False).prefixlen == 0:
        fix = "list the networks that need access, such as 203.0.113.0/24"
        raise refuse("opens the API server to the whole internet", fix)
    return cidr


AllowedCidr: TypeAlias = Annotated[Cidr, AfterValidator(_not_everyone)]

_INTERNAL: Final = tuple(
    ip_network(cidr) for cidr in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
"""Networks that are not routed on the internet: RFC 1918, RFC 6598 and RFC 4193."""
_IPV4: Final = (32, 7)
"""Bits of an address, and prefix length of the largest sum of public networks: more than an organisation has, because
IANA assigned at most a /8: https://www.iana.org/assignments/ipv4-address-space/."""
_IPV6: Final = (128, 16)
"""As above; IANA assigns a /12 to a whole region: https://www.iana.org/assignments/ipv6-unicast-address-assignments/."""


def _not_the_internet(cidrs: list[str]) -> list[str]:
    """Refuses networks that together have most of the internet, such as 0.0.0.0/1 and 128.0.0.0/1."""
    public = [network for cidr in cidrs if not _internal(network := ip_network(cidr, strict=False))]
    version_4 = collapse_addresses(network for network in public if isinstance(network, IPv4Network))
    version_6 = collapse_addresses(network for network in public if isinstance(network, IPv6Network))
    for version, networks, (size, widest) in ((4, version_4, _IPV4), (6, version_6, _IPV6)):
        if sum(network.num_addresses for network in networks) > 2 ** (size - widest):
            rule = f"opens the API server to more public IPv{version} addresses than a /{widest} network has"
            raise refuse(rule, "list only the networks that need access, such as 203.0.113.0/24")
    return cidrs


def _internal(network: IPv4Network | IPv6Network) -> bool:
    return any(
        network.version == internal.version
        and network.network_address in internal
        and network.prefixlen >= internal.prefixlen
        for internal in _INTERNAL
    )


AllowedCidrs: TypeAlias = Annotated[list[AllowedCidr], Field(max_length=1000), AfterValidator(_not_the_internet)]


def _private(cidr: str) -> str:
    network = ip_network(cidr, strict=False)
    if not (isinstance(network, IPv4Network) and _internal(network)):
        raise refuse("is not a private IPv4 network", "use addresses such as 10.16.0.0/16")
    return cidr


PrivateCidr: TypeAlias = Annotated[Cidr, AfterValidator(_private)]

Weekday: TypeAlias = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Exclusion(Section):
    """Days without upgrades by the cloud."""

    start: Date
    """First day, in UTC."""
    end: Date
    """Last day, in UTC."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.end < self.start:
            yield f"end {self.end} is before start {self.start}", "swap them"


class Maintenance(Section):
    """When the cloud upgrades the cluster and its nodes.

    Urgent fixes and the repair of nodes are not bound to these times.
    """

    start: Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] = "03:00"
    """Start of the window, in UTC."""
    hours: Annotated[int, Field(ge=4, le=24)] = 4
    """Length of the window in hours."""
    days: list[Weekday] = []
    """Days on which a window starts; default: every day."""

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if len(set(self.days)) < len(self.days):
            yield "lists a day twice", "remove one of them"


class SystemPool(Section):
    """System nodes of a created cluster, for its own pods."""

    machine: str
    """Machine type of the catalogue, without GPUs."""
    nodes: Nodes = Nodes(min=2, max=3)
    """Number of system nodes."""


class Creation(Section):
    """Settings of a cluster to create, in all clouds."""

    _ADDRESSES: ClassVar[str] = "10.16.0.0/16"
    _PREFIXES: ClassVar[tuple[int, int]] = (8, 24)
    """Smallest and largest prefix length of a network that is created."""

    version: KubernetesVersion
    """Minor version of Kubernetes, such as `1.35`."""
    allow_from: AllowedCidrs = []
    """CIDRs that can reach the API server; default: only the cluster's network."""
    addresses: PrivateCidr | None = None
    """Private addresses of a created network, which cannot be changed later; default: `10.16.0.0/16`, on GKE
    `10.16.0.0/14`."""
    system: SystemPool
    """Nodes for the cluster's own pods, which keep GPU nodes free of them."""

    @property
    def network_addresses(self) -> IPv4Network:
        """Addresses of the network to create."""
        return IPv4Network(self.addresses or self._ADDRESSES, strict=False)

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        least, most = self._PREFIXES
        prefix = self.network_addresses.prefixlen
        if not least <= prefix <= most:
            rule = f"sets addresses with a prefix of /{prefix}, but its network needs /{least} to /{most}"
            yield rule, f"set addresses such as {self._ADDRESSES}"


Provided: TypeAlias = Literal[
    "networkPolicies", "resourceMetrics", "defaultStorageClass", "s3Volumes", "gcsVolumes", "blobVolumes",
    "volumeSnapshots", "provisioningRequests", "efaDevices", "gateways",
]  # fmt: skip
"""What a cluster can provide: a row of `gpu_tenancy/model/catalogue/needs.yaml`."""


@dataclass(frozen=True, slots=True)
class Login:
    """The cloud's role with which somebody finds a cluster; what they may do there is decided by Kubernetes RBAC."""

    role: str
    given: bool  # whether the stack assigns it; else whoever administers the cloud runs `command`
    command: str


def late_storage(resource: str) -> str:
    """The ID of a resource for shared storage, which only the cloud decides, as a parameter of StorageClasses."""
    return f"{resource}.of.storage.invalid"


def late_reader(team: str) -> str:
    """The identity that reads a team's secrets, in place of its name, which only the cloud decides."""
    return f"secret-reader.of.{team}.invalid"


class ClusterSection(Section):
    """Interface of all sections under `cluster`."""

    NODES_MADE: ClassVar[bool] = True
    """Whether this program creates the pools."""

    provides: list[Provided] = []
    """What the existing cluster has, of what the stack needs and neither this program nor the cloud provides:
    `networkPolicies` (a CNI plugin that enforces them), `resourceMetrics` (metrics-server), `defaultStorageClass`,
    `s3Volumes`, `gcsVolumes`, `blobVolumes` (CSI drivers with access to the buckets), `volumeSnapshots` (the snapshot
    controller and its definitions), `provisioningRequests` (an autoscaler that handles them), `efaDevices` (the EFA
    device plugin), `gateways` (the definitions of Gateway API and a controller). A missing need is an error."""
    adopt: Adoptables = []
    """Existing objects that the stack takes over: `Namespace/ml-research`, `Job.batch/ml-research/train`. Fields that
    the stack sets get its values; other fields stay. From then on the object belongs to the stack and is deleted with
    it. Any other existing object is refused."""

    @property
    def grows(self) -> bool:
        """Whether an autoscaler adds nodes up to `nodes.max`; else only `nodes.min` can be guaranteed."""
        return True

    @property
    def creation(self) -> Creation | None:
        """Settings of the cluster to create, under `create`; None for an existing one."""
        return getattr(self, "create", None)

    @property
    def kubernetes(self) -> str | None:
        """Minor version of Kubernetes, such as `1.36`; None if it is unknown."""
        return self.creation.version if self.creation else None

    def zone_rule(self, zone: str) -> tuple[str, str] | None:
        """Rule and fix for a zone that the cluster does not have; None for a valid zone."""
        return None

    def node_zones(self, zones: Sequence[str]) -> tuple[str, ...]:
        """Zones of a pool's nodes, from the zones of the pool; empty if they are unknown."""
        return tuple(zones)

    def reservation_rule(self, reservation: str) -> tuple[str, str] | None:
        """Rule and fix for a reservation that the node autoscaler does not support; None for a supported one."""
        return None

    @property
    def autoscaler_hint(self) -> str | None:
        """How else than by a first node the autoscaler knows what nodes of a pool have, for messages; None if told."""
        return ""

    def queued_rule(self) -> tuple[str, str] | None:
        """Rule and fix if the node autoscaler ignores requests of Kueue for nodes; None if it handles them."""
        return None

    def time_slicing_rule(self) -> tuple[str, str] | None:
        """Rule and fix if time slicing is not supported on this cluster; None if it is."""
        return None

    def image_disk_rule(self, image_disk: str, driver: str | None, *, local_disks: bool) -> tuple[str, str] | None:
        """Rule and fix if nodes cannot have container images from a disk image or snapshot; None if they can.

        They depend on the driver of the pool, and on whether its nodes have images on local disks.
        """
        return "is not supported on this cloud", "remove it"

    def fabric_rule(self, fabric: str, interfaces: int) -> tuple[str, str] | None:
        """Rule and fix for what pools with this fabric lack in the cluster; None if nothing."""
        return None

    def login(self, who: Person) -> Login | None:
        """The cloud's role that a person needs; None if the cluster needs none."""
        return None

    def account_identity(self, team: str, name: str) -> Person | None:
        """The cloud identity of a service account, as the cluster knows it; None if it cannot have one."""
        return None

    def reader_annotations(self, team: str) -> dict[str, str]:
        """Cloud identity of the ServiceAccount as which External Secrets reads a team's secrets; empty without one."""
        return {}

    @property
    def reader_cluster(self) -> dict[str, str]:
        """What a SecretStore says about the cluster; empty where External Secrets finds it out."""
        return {}

    @property
    def storage_parameters(self) -> Mapping[str, str]:
        """Values of the words in braces in parameters of StorageClasses; empty for a cloud whose classes have none."""
        return {}

    def pull_rights(self, registries: Sequence[str]) -> Iterator[str]:
        """What lets the nodes pull images of the stack's registries, and what somebody else must give, in sentences."""
        yield "Nodes must have the right to pull from private registries, from the owner of the cluster"

    def prerequisites(self) -> Iterator[str]:
        """What must exist before a cluster is created, each with the command that creates or finds it."""
        return iter(())

    def is_late(self, user: str) -> bool:
        """Whether a user has another name in the cluster, which the cloud decides when it creates the identity."""
        return False

    def account_rule(self, team: str, name: str, subject: str) -> tuple[str, str] | None:
        """Rule and fix if a service account cannot have a cloud identity for a CI job's subject; None if it can."""
        fix = (
            f"remove it, and use tokens of `tenancy access kubeconfig {team} --as serviceaccount:{team}/{name} --for"
            " 1h`; or have the API server trust the issuer of the CI system's tokens, and list their user under"
            f" teams.{team}.members"
        )
        return "needs a cloud, which gives service accounts identities", fix


GITHUB: Final = "token.actions.githubusercontent.com"
"""Issuer of the tokens of GitHub Actions:
https://docs.github.com/actions/reference/security/oidc."""
_OF_REPOSITORY: Final = re.compile(r"repo:[^/:]+/[^/:]+:.+")


class CloudCluster(ClusterSection):
    """Common keys of clusters in a cloud."""

    _LONGEST_IDENTITY: ClassVar[int]
    """Characters that the cloud accepts in the name of a service account's identity."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]
    """Name of the cluster: at most 40 lowercase letters, digits and `-`."""
    tags: Annotated[dict[Tag, Tag], Field(max_length=20)] = {}
    """Additional tags (labels in GCP) of all cloud resources; `environment` and `managed-by` are always set."""

    @property
    def issuer(self) -> str | None:
        """Issuer of the tokens of service accounts, without https://; None if it is unknown."""
        return None

    @property
    def makes_network(self) -> bool:
        """Whether the cluster's network is created with it."""
        return False

    @property
    def ways_out(self) -> dict[str, int]:
        """How nodes reach the internet, if it is created: names of `catalogue/fixed.yaml`, and their number."""
        return {}

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        if self.creation and self.creation.addresses and not self.makes_network:
            yield "sets create.addresses, but names an existing network", "remove one of them"

    def identity_name(self, team: str, name: str) -> str:
        """Name of a service account's identity in the cloud; underscores separate its parts, which have none."""
        return f"{self.name}_{team}_{name}"

    def team_identity_name(self, team: str) -> str:
        """Name of a team's identity in the cloud; a name that is too long ends in a digest of the whole."""
        whole = f"{self.name}_{team}"
        if len(whole) <= self._LONGEST_IDENTITY:
            return whole
        digest = hashlib.sha256(whole.encode()).hexdigest()[:8]
        return f"{whole[: self._LONGEST_IDENTITY - len(digest) - 1]}_{digest}"

    def reader_name(self, team: str) -> str:
        """Name of the identity in the cloud that reads a team's secrets."""
        return self.team_identity_name(f"{team}__secrets")

    def account_rule(self, team: str, name: str, subject: str) -> tuple[str, str] | None:
        """An identity needs the CI system's issuer, a name that fits, and the subject of one repository."""
        identity, longest = self.identity_name(team, name), self._LONGEST_IDENTITY
        if self.account_identity(team, name) is None:
            return "needs the issuer of the CI system's tokens", "set cluster.identityProvider, or remove subject"
        if len(identity) > longest:
            rule = f"needs an identity {identity}, which is longer than {longest} characters"
            return rule, "shorten the service account's name"
        if self.issuer == GITHUB and not _OF_REPOSITORY.fullmatch(subject):
            fix = "write repo:OWNER/REPOSITORY:..., such as repo:example/vision:ref:refs/heads/main"
            return "is not the subject of one repository of GitHub", fix
        return None
