"""Guards: admission policies for tenants with all permissions in their namespace.

Facts that differ by namespace are annotations of the Namespace. So the policies are the same for one team and for
3,000, no parameter object can be missing, and each object in a namespace is created after its facts. A separate policy
protects the annotations from tenants who can edit their Namespace.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenancy.base.quantity import format_amounts, is_extended
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import charts
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claimed_on, connected_flavors
from gpu_tenancy.model.plan.idle import IDLE_GPUS
from gpu_tenancy.model.plan.namespaces import DEFAULTS, NamespacePlan, container_defaults
from gpu_tenancy.model.plan.needs import AMD, INTEL, NVIDIA, predates, there
from gpu_tenancy.model.plan.operators.kueue import TEAM_LABEL, integrations
from gpu_tenancy.model.plan.people import Subject, accounts
from gpu_tenancy.model.plan.queues import gang_queue_name
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.people import Grace
from gpu_tenancy.model.spec.teams import Team

FACTS: Final = "guards.gpu-tenancy.dev/"  # prefix of the annotations of a Namespace with the facts about its team
SYSTEM: Final = ("default", "kube-node-lease", "kube-public", "kube-system")  # system namespaces of Kubernetes
UNCOUNTED: Final = Subject("ServiceAccount", "delete", "uncounted-pods")
"""Account of the CronJob that deletes pods that no Workload counts; its namespace belongs to no team."""
_VENDORS: Final = (f"{NVIDIA}gpu", f"{NVIDIA}mig-", f"{AMD}gpu", INTEL, "deviceclass.resource.kubernetes.io/")
"""Prefixes of the resources that vendors' device plugins advertise for GPUs and MIG partitions, and of resources by
which a container requests devices of a DeviceClass:
https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#extended-resource."""
OF_KUBERNETES: Final = ("system:kube-controller-manager", accounts("kube-system"))  # its own controllers
VOLCANO: Final = accounts(charts()["volcano"].namespace)
_ABOVE: Final = ("system:masters", "system:nodes")
"""Groups that are always exempt: the first can do everything, including deleting these policies; kubelets create only
mirror pods of their static pods."""
_CACHES: Final = "fluid"
_MAKERS: Final = {"volcano": "volcano", "kueue": "kueue", _CACHES: "fluid", "kuberay": "kuberay-operator", "lws": "lws"}
"""Operators, with their charts, that create pods in teams' namespaces for objects that were evaluated, or change
admitted objects."""
USUAL_LIMITS: Final = container_defaults(Team.model_validate({"owner": "x", "costCenter": "x"})).limits
"""Default limits of containers of a team that sets none."""
USUAL_SIZES: Final = {name: str(DEFAULTS[name]) for name in ("children", "pods")}
"""Maximum numbers of what one object has in the namespace of a team that sets none, by key of `objects`."""
MUTATING: Final = (1, 36)
"""Kubernetes from which MutatingAdmissionPolicies are generally available (`admissionregistration.k8s.io/v1`):
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the pods in a namespace, by the priority classes (`classes`) that they may use."""

    namespace: NamespacePlan
    classes: tuple[str, ...]
    must_name: bool  # whether the namespace's quota rejects pods without a class
    gang_nodes: tuple[str, ...] = ()  # `queue=label=value` for the nodes of each Volcano queue's flavor

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the Namespace: lists separated by commas, amounts as `resource=amount`.

        Common values are omitted, so that an edit of the stack's priorities changes no Namespace. GPU resources that
        are not listed have no maximum.
        """
        team, limits = self.namespace.team, self.namespace.limits
        expose = team.network.expose
        gang = bool(team.gangs) or any(job.gang for job in team.training.values())
        gpus = [f"{resource}={amount}" for resource, amount in limits.max.items() if is_extended(resource)]
        defaults = {name: amount for name, amount in limits.default.items() if not is_extended(name)}
        most = {name: amount for name, amount in limits.max.items() if not is_extended(name)}
        facts: dict[str, Iterable[str]] = {
            "priority-classes": self.classes if team.compute.priorities else [],
            "priority-class-required": ["true"] if self.must_name else [],
            "default-priority": [team.priority] if team.priority else [],
            "default-deadline": [str(team.deadline)] if team.deadline else [],
            "pull-secrets": self.namespace.pull_secrets,
            "schedulers": ["default-scheduler", "volcano"] if gang else [],
            "volcano-queues": [gang_queue_name(self.namespace.name, flavor) for flavor in team.gangs],
            "volcano-nodes": self.gang_nodes,
            "max-gpus-per-container": gpus,
            "max-limit-request-ratio": [f"{resource}={float(ratio):g}" for resource, ratio in limits.ratio.items()],
            "default-limits": [] if defaults == USUAL_LIMITS else _listed(defaults),
            "min-per-container": _listed(limits.min),
            "max-per-container": _listed(most),
            **{f"max-{name}": [str(most)] for name, most in self.namespace.sizes.items() if most != DEFAULTS[name]},
            "default-gpus": ["0"] if limits.gives_gpus else [],
            "workload-secrets": sorted(set(team.workload_secrets)),
            "expose-hosts": expose.hosts,
            "expose-classes": expose.classes,
            "expose-services": expose.services,
            "expose-public": ["true"] if expose.reach == "public" else [],
        }
        texts = {FACTS + name: ",".join(values) for name, values in facts.items()}
        return {key: text for key, text in sorted(texts.items()) if text}


def _listed(amounts: Mapping[str, int]) -> Iterator[str]:
    return (f"{resource}={amount}" for resource, amount in format_amounts(amounts).items())


@dataclass(frozen=True, slots=True)
class GuardsPlan:
    """The admission policies: their scope, rules and action."""

    action: Literal["deny", "warn", "audit", "off"]  # for objects that violate a policy
    label: tuple[str, str]  # of the namespaces that the policies apply to
    spared: tuple[str, ...]  # namespaces that are always excluded, whatever their labels
    exempt: tuple[str, ...]  # users and groups that the policies do not apply to
    makers: tuple[str, ...]  # accounts that create pods for evaluated owners, and change admitted objects
    caches: str | None  # accounts of the operator of caches, whose owners are not evaluated; None without
    frameworks: tuple[str, ...]  # Kueue's integrations
    external: tuple[str, ...]  # kinds (`group/Kind`) whose children Kueue leaves to their operator
    trainer: str | None  # group that creates JobSets from TrainJobs and their runtimes; None without Kubeflow Trainer
    priorities: Mapping[str, int]  # values of the priority classes
    taints: Mapping[str, tuple[str, ...]]  # keys of the nodes' taints by GPU resource, the GPU taint first
    names: tuple[str, ...]  # prefixes of GPU resources
    max_per_node: Mapping[str, int]  # maximum of each GPU resource on any node of the stack
    members: bool  # whether teams have members, whose rights the policies complete
    teams: Mapping[str, Bounds]
    registries: tuple[str, ...]  # registries of images, each with the start of a path; empty for any
    csi: tuple[str, ...]  # CSI drivers of inline volumes that pods may have
    channels: bool  # whether pods can claim channels of ComputeDomains
    claims: bool  # whether pods can claim channels or interfaces, so that Kueue admits pods with claims
    preempting: tuple[str, ...]  # priority classes whose pods preempt others
    defaults: bool  # whether MutatingAdmissionPolicies complete the objects that members of teams submit
    elastic: bool  # whether the size of a job can change while it runs
    grace: Grace  # maximum termination grace periods of pods with GPUs, in seconds
    internal: Mapping[str, str]  # annotations of internal load balancers, of all clouds if the cluster's is unknown
    public: Mapping[str, str]  # annotations of a public load balancer

    @property
    def deletes_uncounted(self) -> bool:
        """Whether pods that no Workload counts are deleted: where objects are refused that have such pods."""
        return self.action == "deny" and bool(self.teams and self.max_per_node)


def guards(tree: Tree, namespaces: tuple[NamespacePlan, ...]) -> GuardsPlan:
    """The guards of a stack, for its teams' namespaces."""
    stack = tree.stack
    maximum: dict[str, int] = {}
    for flavor in tree.flavors.values():
        if flavor.resource:
            maximum[flavor.resource] = max(maximum.get(flavor.resource, 0), flavor.node.get(flavor.resource, 0))
    operators = {row.namespace for row in charts().values()}
    others = (resource for resource in maximum if not resource.startswith(_VENDORS))
    integrated = integrations(tree)
    known = {name: rules.load_balancers for name, rules in clouds().items() if rules.load_balancers}
    cloud = stack.cluster.cloud
    balancers = [known[cloud]] if cloud in known else [*known.values()]
    makers = (group for name, chart in _MAKERS.items() for group in _accounts_of(tree, name, chart))
    stops = [accounts(IDLE_GPUS)] if stack.idle_teams else []  # It annotates and stops Workloads, as Kueue does.
    default = next((name for name, entry in stack.priorities.items() if entry.default), None)
    bounds: dict[str, Bounds] = {}
    for space in namespaces:
        own = space.team.compute.priorities
        classes = tuple(sorted(own or stack.priorities))
        nodes = (
            f"{gang_queue_name(space.name, flavor)}={label}={value}"
            for flavor in space.team.gangs
            for label, value in sorted(tree.flavors[flavor].node_labels.items())
        )
        bounds[space.name] = Bounds(space, classes, bool(own) and default not in own, tuple(nodes))
    return GuardsPlan(
        action=stack.guards_action,
        label=TEAM_LABEL,
        spared=tuple(sorted({*SYSTEM, stack.metrics.prometheus.namespace, *operators})),
        exempt=tuple(dict.fromkeys((*_ABOVE, *stack.guards.exempt))),
        makers=(*OF_KUBERNETES, *stops, *makers),
        caches=next(_accounts_of(tree, _CACHES, _CACHES), None),
        frameworks=tuple(integrated["frameworks"]),
        external=tuple(_key(name) for name in integrated.get("externalFrameworks", ())),
        trainer=next(_accounts_of(tree, "trainer", "kubeflow-trainer"), None),
        priorities={name: entry.value for name, entry in sorted(stack.priorities.items())},
        preempting=tuple(name for name, entry in sorted(stack.priorities.items()) if entry.preempts),
        taints=_taints(tree),
        names=(*_VENDORS, *others),
        max_per_node=dict(sorted(maximum.items())),
        members=any(namespace.bindings for namespace in namespaces),
        teams=bounds,
        registries=tuple(stack.images.allowed),
        csi=tuple(stack.guards.csi),
        channels=bool(connected_flavors(tree)),
        claims=bool(claimed_on(tree)),
        elastic=stack.guards.elastic_jobs,
        grace=stack.guards.periods,
        defaults=bool(namespaces and stack.cluster.kubernetes) and not predates(stack.cluster, MUTATING),
        internal={key: value for facts in balancers for key, value in facts.internal.items()},
        public={key: value for facts in balancers for key, value in facts.public.items()},
    )


def _taints(tree: Tree) -> dict[str, tuple[str, ...]]:
    keys: dict[str, dict[str, None]] = {}
    for flavor in tree.flavors.values():
        if flavor.resource:
            keys.setdefault(flavor.resource, {}).update(dict.fromkeys(taint.key for taint in flavor.taints))
    return {resource: tuple(keys[resource]) for resource in sorted(keys)}


def _key(framework: str) -> str:
    kind, _, group = framework.split(".", 2)
    return f"{group}/{kind}"


def _accounts_of(environment: Environment, operator: str, chart: str) -> Iterator[str]:
    """The accounts of an operator, if it is installed. No team can have its namespace."""
    if there(environment, operator):
        yield accounts(charts()[chart].namespace)


_HUB: Final = "docker.io"


def full_path(image: str) -> str:
    """An image's registry and path without tag and digest, as container runtimes complete it.

    https://github.com/distribution/reference/blob/main/normalize.go
    """
    name = image.partition("@")[0]
    first, slash, rest = name.partition("/")
    if not slash or not ({".", ":"} & set(first) or first == "localhost"):
        first, rest = _HUB, name if slash else f"library/{name}"
    path = rest.partition(":")[0]
    if first in {_HUB, "index.docker.io"}:
        first, path = _HUB, path if "/" in path else f"library/{path}"
    return f"{first}/{path}"


def prefix_expression(prefix: str) -> str:
    """The regular expression (RE2) of the images, by full path, that start with a prefix, by whole segments."""
    host, *path = (
        "[^/]*".join(map(re.escape, segment.split("*"))).replace("\\-", "-") for segment in prefix.split("/")
    )
    # After a host, a colon would begin its port; after a path, a tag.
    return f"^{'/'.join((host, *path))}([/:]|$)" if path else f"^{host}/"


def is_allowed(image: str, prefixes: Iterable[str]) -> bool:
    """Whether an image comes from one of some registries."""
    path = full_path(image)
    return any(re.search(prefix_expression(prefix), path) for prefix in prefixes)


def own_images() -> tuple[str, ...]:
    """Images that this program adds to pods of teams (daemons of fabrics), allowed besides the stack's list."""
    return tuple(sorted({full_path(row.daemon.image) for row in fabrics().values() if row.daemon}))


def pull_rights(stack: Stack) -> tuple[str, ...]:
    """Rights of the nodes to pull images of the allowed registries, here or by others; empty without `images`."""
    if not (stack.images.allowed or stack.images.registries):
        return ()
    return tuple(stack.cluster.pull_rights(stack.images.registries))
