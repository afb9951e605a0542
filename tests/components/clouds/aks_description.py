"""AKS's own description of its API: the models of azure-mgmt-containerservice, and rules of its documentation.

The models are those of API version 2026-08-01, the only one in the package; pulumi-azure-native uses 2025-09-01. The
later version has every property of its clusters and pools, by the same name. The types of the Pulumi SDK refuse the
properties that the later version adds.
"""

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from azure.mgmt.containerservice import models
from azure.mgmt.containerservice.operations import AgentPoolsOperations, ManagedClustersOperations
from cloud_descriptions import Description, Inputs, Place
from pydantic.alias_generators import to_camel

from gpu_tenancy.engine.recording import UNKNOWN

Json: TypeAlias = Mapping[str, Any]
SPOT: Final = "kubernetes.azure.com/scalesetpriority"
TAINT: Final = re.compile(
    r"[A-Za-z0-9][-\w./]{0,252}(=[A-Za-z0-9]?[-\w.]{0,62})?:(NoSchedule|PreferNoSchedule|NoExecute)"
)


@dataclass(frozen=True)
class Finding:
    """A problem at one place of some inputs."""

    kind: Literal["problem", "required", "enumerated"]
    place: Place
    text: str = ""


Rule: TypeAlias = Callable[[Json], Iterator[Finding]]


def wrong(text: str, *place: str | int) -> Finding:
    return Finding("problem", place, text)


def needed(inputs: Json, *place: str | int) -> Iterator[Finding]:
    here: object = inputs
    for part in place:
        here = cast("Mapping[str | int, object]", here).get(part) if isinstance(here, Mapping) else None
    yield wrong("is missing", *place) if here is None else Finding("required", place)


def pool_name(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/create-node-pools#limitations."""
    name = pool.get("agentPoolName", pool.get("name", ""))
    if name != UNKNOWN and not re.fullmatch("[a-z][a-z0-9]{0,11}", str(name)):
        yield wrong(f"{name} is no name of a Linux node pool", "agentPoolName")


def autoscaler(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/cluster-autoscaler."""
    if pool.get("enableAutoScaling") is True:
        for key in ("minCount", "maxCount"):
            yield from needed(pool, key)
        bounds = [pool.get("minCount"), pool.get("count"), pool.get("maxCount")]
        known = [bound for bound in bounds if isinstance(bound, int)]
        if known != sorted(known):
            yield wrong("are not in order: minCount, count, maxCount", "minCount")
    elif "count" not in pool:
        yield wrong("is missing: the pool would have one node", "count")
    else:
        yield Finding("required", ("count",))
    if not pool.get("enableAutoScaling") and {"minCount", "maxCount"} & set(pool):
        yield wrong("has bounds without an autoscaler", "minCount")


def labels(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-labels#reserved-prefixes, but for AKS's own mark of spot pools."""
    spot = pool.get("scaleSetPriority") == "Spot"
    for key in pool.get("nodeLabels", {}):
        if key.startswith(("kubernetes.azure.com/", "kubernetes.io/")) and not (spot and key == SPOT):
            yield wrong(f"{key} has a prefix of AKS's own", "nodeLabels")


def taints(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-node-taints; twins: https://github.com/Azure/AKS/issues/1412."""
    taint_texts = [str(taint) for taint in pool.get("nodeTaints", [])]
    if len({re.split("[=:]", taint)[0] for taint in taint_texts}) < len(taint_texts):
        yield wrong("has two taints of one key", "nodeTaints")
    yield from (wrong(f"{taint} is no taint", "nodeTaints") for taint in taint_texts if not TAINT.fullmatch(taint))


def disk(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters/agentpools."""
    if not 0 <= pool.get("osDiskSizeGB", 0) <= 2048:
        yield wrong("is not between 0 and 2048", "osDiskSizeGB")


def spot(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/spot-node-pool."""
    is_spot, price = pool.get("scaleSetPriority") == "Spot", pool.get("spotMaxPrice", -1)
    if not is_spot and {"scaleSetEvictionPolicy", "spotMaxPrice"} & set(pool):
        yield wrong("only a spot pool has an eviction policy and a price", "scaleSetPriority")
    if price != -1 and not price > 0:
        yield wrong("is neither -1 nor above zero", "spotMaxPrice")
    if is_spot and f"{SPOT}=spot:NoSchedule" not in pool.get("nodeTaints", []):
        yield wrong("a spot pool has the spot taint", "nodeTaints")
    # https://github.com/hashicorp/terraform-provider-azurerm/pull/31129
    for key in {"maxSurge", "maxUnavailable"} & set(pool.get("upgradeSettings", {})) if is_spot else ():
        yield wrong("a spot pool has no such setting", "upgradeSettings", key)


def reservation(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/virtual-machines/capacity-reservation-overview#limitations-and-restrictions."""
    beside = pool.get("scaleSetPriority") == "Spot" or "proximityPlacementGroupID" in pool
    if "capacityReservationGroupID" not in pool:
        return
    if beside:
        yield wrong("goes neither with spot nor with a proximity placement group", "capacityReservationGroupID")
    if re.match("Standard_(ND|NC.*H100)", pool.get("vmSize", "")):
        yield wrong("is of a machine that Azure reserves no capacity of", "capacityReservationGroupID")


def placement(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/reduce-latency-ppg#limitations."""
    if "proximityPlacementGroupID" in pool and len(pool.get("availabilityZones", [])) > 1:
        yield wrong("a proximity placement group is in one zone", "availabilityZones")


def boot(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-trusted-launch#limitations."""
    secure = pool.get("securityProfile", {}).get("enableSecureBoot")
    if secure and pool.get("gpuProfile", {"driver": "None"}).get("driver") != "None":
        yield wrong("Secure Boot does not go with a driver that AKS installs", "securityProfile", "enableSecureBoot")


def upgrade(pool: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/upgrade-aks-node-pools-rolling."""
    said: Json = pool.get("upgradeSettings", {})
    for key in {"maxSurge", "maxUnavailable"} & set(said):
        if not re.fullmatch(r"\d+%?", str(said[key])):
            yield wrong(f"{said[key]} is neither a number nor a percentage", "upgradeSettings", key)
    if "maxUnavailable" in said and pool.get("mode") == "System":
        yield wrong("a system pool has no such setting", "upgradeSettings", "maxUnavailable")
    if said.get("maxSurge") == "0":
        yield from needed(pool, "upgradeSettings", "maxUnavailable")
        if said.get("maxUnavailable", "0") == "0":
            yield wrong("neither adds a node nor takes one away", "upgradeSettings", "maxUnavailable")
    if not 5 <= said.get("drainTimeoutInMinutes", 30) <= 1440:
        yield wrong("is not between 5 minutes and 24 hours", "upgradeSettings", "drainTimeoutInMinutes")


POOL_RULES: Final[tuple[Rule, ...]] = (
    pool_name,
    autoscaler,
    labels,
    taints,
    disk,
    spot,
    reservation,
    placement,
    boot,
    upgrade,
)


def whole(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/templates/microsoft.containerservice/managedclusters."""
    for key in ("dnsPrefix", "agentPoolProfiles", "identity"):
        yield from needed(cluster, key)
    if cluster.get("identity", {}).get("type") == "UserAssigned":
        yield from needed(cluster, "identity", "userAssignedIdentities")


def system_pool(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-system-pools."""
    pools: list[Json] = cluster.get("agentPoolProfiles", [])
    if not any(pool.get("mode") == "System" and pool.get("count", 1) for pool in pools):
        yield wrong("has no system pool with a node", "agentPoolProfiles")
    for index, pool in enumerate(pools):
        for rule in POOL_RULES:
            for finding in rule(pool):
                yield Finding(finding.kind, ("agentPoolProfiles", index, *finding.place), finding.text)


def people(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/manage-local-accounts-managed-azure-ad."""
    if cluster.get("disableLocalAccounts"):
        yield from needed(cluster, "aadProfile", "managed")


def key_of_secrets(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/use-kms-etcd-encryption."""
    kms: Json = cluster.get("securityProfile", {}).get("azureKeyVaultKms", {})
    if not kms.get("enabled"):
        return
    yield from needed(cluster, "securityProfile", "azureKeyVaultKms", "keyId")
    if (kms.get("keyVaultNetworkAccess") == "Private") != ("keyVaultResourceId" in kms):
        yield wrong("only a private vault has its id here", "securityProfile", "azureKeyVaultKms")
    if cluster.get("identity", {}).get("type") != "UserAssigned":
        yield wrong("reads a key by an identity that was there before it", "identity", "type")


def workload_identity(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/workload-identity-deploy-cluster."""
    if cluster.get("securityProfile", {}).get("workloadIdentity", {}).get("enabled"):
        yield from needed(cluster, "oidcIssuerProfile", "enabled")


def entrance(cluster: Json) -> Iterator[Finding]:
    """https://learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges#limitations."""
    said: Json = cluster.get("apiServerAccessProfile", {})
    if said.get("enablePrivateCluster") and said.get("authorizedIPRanges"):
        yield wrong("a private cluster has no allow-list", "apiServerAccessProfile")


CLUSTER_RULES: Final[tuple[Rule, ...]] = (whole, system_pool, people, key_of_secrets, workload_identity, entrance)

# AKS's own description of its API: the models of azure-mgmt-containerservice, and what its pages say beside them


CLUSTER: Final = "azure-native:containerservice:ManagedCluster"
POOL: Final = "azure-native:containerservice:AgentPool"
BODIES: Final[Mapping[str, type]] = {CLUSTER: models.ManagedCluster, POOL: models.AgentPool}
CALLS: Final[Mapping[str, Callable[..., object]]] = {
    CLUSTER: ManagedClustersOperations.begin_create_or_update,
    POOL: AgentPoolsOperations.begin_create_or_update,
}
RULES: Final[Mapping[str, Sequence[Rule]]] = {CLUSTER: CLUSTER_RULES, POOL: POOL_RULES}
# Properties of Azure Resource Manager around a resource's; Pulumi's inputs are flat.
ENVELOPE: Final = {"id", "name", "type", "systemData", "properties"}
# Maps of the API from ids to nothing, which are lists of ids in Pulumi.
AS_LISTS: Final = {("ManagedClusterIdentity", "userAssignedIdentities")}
DASHED: Final = models.ManagedClusterPropertiesAutoScalerProfile
"""The model whose properties are written with dashes in the API, as flags of the autoscaler."""

UNDESCRIBED: Final = "no description of this service is among the development dependencies"

Annotation: TypeAlias = Any  # a type as Python writes it at run time


@dataclass(frozen=True)
class Property:
    annotation: Annotation
    required: bool
    writable: bool


@cache
def properties(model: type) -> Mapping[str, Property]:
    """The properties of a model by the API's names, those inside its envelope for a whole resource."""
    hints = get_type_hints(model, localns={"_models": models})
    found: dict[str, Property] = {}
    for owner in reversed(model.__mro__):
        for name, field in vars(owner).items():
            if type(field).__name__ != "_RestField":
                continue
            rest_field = cast("dict[str, Any]", vars(field))
            optional = NoneType in get_args(hints[name])
            writable = bool({"create", "update"} & set(rest_field["_visibility"] or ["create"]))
            rest_name = rest_field["_rest_name_input"] or name
            found[to_camel(rest_name.replace("-", "_")) if model is DASHED else rest_name] = Property(
                hints[name], not optional, writable
            )
    if "properties" not in found:
        return found
    inner = properties(_stripped(found["properties"].annotation))
    return {**{name: value for name, value in found.items() if name not in ENVELOPE}, **inner}


def _stripped(annotation: Annotation) -> Annotation:
    rest = [argument for argument in get_args(annotation) if argument is not NoneType]
    if get_origin(annotation) not in {Union, UnionType} or len(rest) == len(get_args(annotation)):
        return annotation
    # pyrefly: ignore[invalid-annotation]
    return rest[0] if len(rest) == 1 else Union[tuple(rest)]  # noqa: UP007 - made at run time


def _object(model: type, value: Mapping[str, Any], place: Place) -> Iterator[Finding]:
    known = properties(model)
    for key, inner in value.items():
        at = (*place, key)
        if key not in known:
            yield Finding("problem", at, f"{model.__name__} has no {key}")
        elif not known[key].writable:
            yield Finding("problem", at, f"{model.__name__}.{key} is AKS's to write")
        else:
            yield from _value(known[key].annotation, _as_map(model, key, inner), at)
            if known[key].required:
                yield Finding("required", at)
    for name, each in known.items():
        if each.required and name not in value:
            yield Finding("problem", (*place, name), f"{model.__name__}.{name} is missing")


def _as_map(model: type, key: str, value: object) -> object:
    if (model.__name__, key) not in AS_LISTS or not isinstance(value, list):
        return value
    return {str(item): cast("dict[str, object]", {}) for item in cast("list[object]", value)}


def _value(annotation: Annotation, value: object, place: Place) -> Iterator[Finding]:
    if value == UNKNOWN:
        return
    wanted = _stripped(annotation)
    words = [
        argument
        for argument in (wanted, *get_args(wanted))
        if isinstance(argument, type) and issubclass(argument, Enum)
    ]
    if words:
        known = [str(word.value) for word in words[0]]
        yield Finding("enumerated", place)
        if value not in known:
            yield Finding("problem", place, f"{value} is none of {', '.join(known)}")
    elif get_origin(wanted) is list and isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _value(get_args(wanted)[0], inner, (*place, index))
    elif get_origin(wanted) is dict and isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _value(get_args(wanted)[1], inner, (*place, key))
    elif isinstance(wanted, type) and hasattr(wanted, "as_dict") and isinstance(value, Mapping):
        yield from _object(wanted, cast("Mapping[str, Any]", value), place)
    elif not _is(wanted, value):
        yield Finding("problem", place, f"{value!r} is no {wanted}")


def _is(wanted: Annotation, value: object) -> bool:
    if wanted is bool or isinstance(value, bool):
        return wanted is bool and isinstance(value, bool)
    if wanted is float:
        return isinstance(value, int | float)
    if wanted is dt.date:
        return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value) is not None
    return isinstance(wanted, type) and wanted in {int, str} and isinstance(value, wanted)


@cache
def path(token: str) -> Sequence[str]:
    """The names in the call's path, which Pulumi has among the inputs."""
    names = [to_camel(name) for name in inspect.signature(CALLS[token]).parameters]
    return [name for name in names if name.endswith("Name")]


def findings(token: str, inputs: Inputs) -> Iterator[Finding]:
    for name in path(token):
        yield Finding("required", (name,)) if name in inputs else Finding("problem", (name,), f"{name} is missing")
        if not isinstance(inputs.get(name, ""), str):
            yield Finding("problem", (name,), f"{name} is no text")
    body = {key: value for key, value in inputs.items() if key not in path(token)}
    found_in_body = list(_object(BODIES[token], body, ()))
    yield from found_in_body
    if any(finding.kind == "problem" for finding in found_in_body):
        return  # The pages speak of what has the models' types.
    for rule in RULES[token]:
        yield from rule(inputs)


def problems_of(model: type, value: Mapping[str, Any]) -> list[str]:
    """AKS's errors for a part of a request."""
    found = [finding for finding in _object(model, value, ()) if finding.kind == "problem"]
    return [f"{'.'.join(map(str, finding.place))}: {finding.text}" for finding in found]


class AksDescription:
    """The descriptions of AKS's clusters and node pools."""

    stacks: Sequence[str] = ("prod-azure",)
    types = frozenset(BODIES)
    undescribed: Mapping[str, str] = {
        "azure-native:authorization:RoleAssignment": UNDESCRIBED,
        "azure-native:compute:ProximityPlacementGroup": UNDESCRIBED,
        "azure-native:managedidentity:UserAssignedIdentity": UNDESCRIBED,
        "azure-native:monitor:DiagnosticSetting": UNDESCRIBED,
        "azure-native:containerservice:MaintenanceConfiguration": "compared with the model in test_clouds_aks_gke",
    }

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        diagnostics = [finding for finding in findings(token, inputs) if finding.kind == "problem"]
        return [f"{'.'.join(map(str, finding.place))}: {finding.text}" for finding in diagnostics]

    def required(self, token: str, inputs: Inputs) -> list[Place]:
        return list(dict.fromkeys(finding.place for finding in findings(token, inputs) if finding.kind == "required"))

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]:
        return list(dict.fromkeys(finding.place for finding in findings(token, inputs) if finding.kind == "enumerated"))


DESCRIPTION: Final[Description] = AksDescription()
