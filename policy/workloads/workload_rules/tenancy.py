"""Rules for tenants' namespaces."""

from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from judge import ADVICE, AnyRule, Resource, Rule, Severity, Stack
from workload_rules.objects import QUOTAS, like, name, objects
from workload_rules.pods import ASKING, BATCH, PODS_IN, Pod, TenantGpus, Tenants, namespace

_STANDARDS: Final = "https://kubernetes.io/docs/concepts/security/pod-security-admission/"
_NETWORK: Final = "https://kubernetes.io/docs/concepts/services-networking/network-policies/"
_QUOTA: Final = "https://kubernetes.io/docs/concepts/policy/resource-quotas/"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"

NAMESPACES: Final = objects("namespaces", "core:Namespace")
_POLICIES: Final = objects("network policies", "networking.k8s.io:NetworkPolicy")
_OWNED: Final = objects("namespaces and workloads", "core:Namespace", *PODS_IN, *BATCH)


def _own(resource: Resource) -> str:
    return name(resource) or resource.name


class LevelSettings(Tenants):
    """What pods of tenants may be."""

    level: Literal["baseline", "restricted"] = Field(
        "baseline", description="The least Pod Security level that a tenant's namespace enforces."
    )


def _level(space: Resource, settings: LevelSettings) -> Iterator[str]:
    if not settings.tenant(_own(space)):
        return
    found = space.props.text("metadata", "labels", _ENFORCE)
    fine = {"restricted", settings.level}
    if not found:
        yield f"enforces no Pod Security level; write label {_ENFORCE}: {settings.level}"
    elif found not in fine:
        yield f"enforces the Pod Security level {found}; write {settings.level}"


POD_SECURITY: Final = Rule(
    name="pod-security-level",
    says="A tenant's namespace enforces a Pod Security level.",
    why="Without one, whoever may create pods there may take the node, and with it every team's data on it.",
    mend="Label the namespace; keep what needs privileges in a namespace of the system.",
    link=_STANDARDS,
    severity=Severity.HIGH,
    level=ADVICE,
    on=NAMESPACES,
    judge=_level,
    settings=LevelSettings,
)


class OwnerSettings(Tenants):
    """By which labels everything is somebody's."""

    labels: dict[str, list[str]] = Field(
        {"owner": ["team"], "cost-center": ["cost-centre", "costCenter"], "environment": ["env"]},
        description="Labels, each with others that do as well.",
    )
    workloads: bool = Field(default=False, description="Whether workloads carry them too, and not namespaces alone.")


def _owner(owned: Resource, settings: OwnerSettings) -> Iterator[str]:
    is_space = owned.kind == "Namespace"
    if not is_space and not settings.workloads:
        return
    if not settings.tenant(_own(owned) if is_space else namespace(owned)):
        return
    labels = owned.props.entries("metadata", "labels")
    missing = [
        label
        for label, others in sorted(settings.labels.items())
        if not any(each in labels and labels[each].text() for each in (label, *others))
    ]
    if missing:
        yield f"has no label {', '.join(missing)}; write whose it is"


OWNER: Final = Rule(
    name="owner-labels",
    says="A namespace says whose it is and who pays for it.",
    why="Costs of GPUs that nobody owns are everybody's, and nobody is asked when they stand idle.",
    mend="Write the labels for owner, cost centre and environment.",
    link="https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/",
    severity=Severity.LOW,
    level=ADVICE,
    on=_OWNED,
    judge=_owner,
    settings=OwnerSettings,
)


class DenySettings(Tenants):
    """What a namespace denies unless another policy allows it."""

    egress: bool = Field(default=False, description="Whether traffic out of the pods must be denied as well.")


def _denies(policy: Resource, space: str, direction: str) -> bool:
    """Whether a policy closes one direction for all pods of a namespace."""
    spec = policy.props.at("spec")
    if namespace(policy) != space or spec.entries("podSelector", "matchLabels"):
        return False
    if spec.items("podSelector", "matchExpressions") or spec.items(direction.lower()):
        return False
    types = spec.texts("policyTypes")
    return direction in types or (not types and (direction == "Ingress" or spec.has("egress")))


def _default_deny(space: Resource, settings: DenySettings, stack: Stack) -> Iterator[str]:
    own = _own(space)
    if not settings.tenant(own):
        return
    wanted = ["Ingress", "Egress"] if settings.egress else ["Ingress"]
    missing = [
        direction
        for direction in wanted
        if stack.first(_POLICIES, lambda each, direction=direction: _denies(each, own, direction)) is None
    ]
    if missing:
        yield (
            f"no NetworkPolicy denies {' and '.join(missing)} by default; make one with podSelector {{}}, policyTypes"
            f" [{', '.join(missing)}] and no rules"
        )


DEFAULT_DENY: Final = Rule(
    name="default-deny",
    says="A tenant's namespace denies traffic that no policy allows.",
    why="Pods of every other namespace reach its model servers and its training's ports otherwise.",
    mend="Make a NetworkPolicy that selects all pods and allows nothing, and others for what is needed.",
    link=f"{_NETWORK}#default-policies",
    severity=Severity.HIGH,
    level=ADVICE,
    on=NAMESPACES,
    judge=_default_deny,
    settings=DenySettings,
    whole=True,
)


class SpaceQuota(TenantGpus):
    """Where quotas are made."""

    elsewhere: list[str] = Field(
        [], description="Namespaces, as patterns, whose quotas are made by something else than the stack."
    )


def _has_quota(pod: Pod, settings: SpaceQuota, stack: Stack) -> Iterator[str]:
    gpus = pod.gpus(settings)
    if not gpus or like(pod.namespace, settings.elsewhere):
        return
    for resource in gpus:
        key = f"requests.{resource}"
        quota = stack.first(
            QUOTAS, lambda each, key=key: namespace(each) == pod.namespace and each.props.has("spec", "hard", key)
        )
        if quota is None:
            yield (
                f"asks for {resource}, and no ResourceQuota of namespace {pod.namespace} has {key}; make one, or list"
                " the namespace under `elsewhere`"
            )


GPU_QUOTA: Final = Rule(
    name="gpu-namespace-quota",
    says="A namespace with GPU pods has a quota of those GPUs.",
    why="Without one, pods that name no queue may take all GPUs of the cluster.",
    mend="Make a ResourceQuota with `requests.<resource>` in the namespace.",
    link=_QUOTA,
    severity=Severity.HIGH,
    level=ADVICE,
    on=ASKING,
    judge=lambda pod, settings, stack: settings.of_tenant(pod.resource, _has_quota(pod, settings, stack)),
    settings=SpaceQuota,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (POD_SECURITY, OWNER, DEFAULT_DENY, GPU_QUOTA)
