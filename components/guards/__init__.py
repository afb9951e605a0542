"""Admission policies for objects that tenants create after the deployment: `policies/` and `defaults/`, filled in."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Final

import pulumi
from pulumi_kubernetes.admissionregistration import v1 as admissionregistration

from gpu_tenancy.base.quantity import format_amounts
from gpu_tenancy.model.kinds import WorkloadKind
from gpu_tenancy.model.manifests.pods import MARGIN, STAYS
from gpu_tenancy.model.names import ACCOUNT, CHANNEL_CLASS, HOLD, WRITTEN_BY_KUEUE
from gpu_tenancy.model.plan.guards import (
    OF_KUBERNETES,
    USUAL_LIMITS,
    USUAL_SIZES,
    VOLCANO,
    GuardsPlan,
    own_images,
    prefix_expression,
)
from gpu_tenancy.model.plan.identities import ACCOUNTS_OF_PODS
from gpu_tenancy.model.plan.operators.kueue import UNCOVERED
from gpu_tenancy.model.plan.pools import GPU_TAINT_VALUE
from gpu_tenancy.model.plan.workloads import SHIPPED, WAITS_FOR_RAY
from gpu_tenancy.model.yaml import read_table

from ..objects import Component, Options
from . import cel
from .cel import key

DEFAULTS: Final = ("workloads", "ray", "running", "deadline", "pull-secrets")  # names of the MutatingAdmissionPolicies
_ACTIONS: Final = {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}
"""Validation actions of the API. `warn` also writes to the audit log, to count what `deny` would reject."""

_READ: Final = re.compile(r"\bvariables\.(\w+)")
_OWNERS: Final = ("apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet", "batch/Job", "/Pod")
"""Kinds whose children Kueue does not count again, beside its optional integrations."""


class Guards(Component):
    """Admission policies in the teams' namespaces, which also bind tenants with all permissions in their namespace.

    Before the guards, which reject, defaults complete objects of members of teams. One policy per rule serves all
    teams: facts about a team are annotations of its Namespace, which tenants cannot change. Objects that controllers of
    Kubernetes and the operators create for an evaluated owner are exempt, by the user of the request, because a tenant
    can forge an owner reference. More rules bind members of teams, where RBAC is too coarse. Roles are not managed
    here. `bindings` depend on their policies.
    """

    def __init__(self, name: str, guards: GuardsPlan, opts: Options = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, opts)
        guarding = [self._policy(f"{name}-{rule}", rule, action, guards) for rule, action in actions(guards).items()]
        completed = DEFAULTS if guards.defaults else ()
        defaults = [self._default(f"{name}-default-{what}", what, guards) for what in completed]
        self.bindings: list[pulumi.Resource] = [*guarding, *defaults]

    def _policy(
        self, name: str, rule: str, action: str, guards: GuardsPlan
    ) -> admissionregistration.ValidatingAdmissionPolicyBinding:
        policy_name = f"gpu-tenancy-{rule}"
        policy_spec: Any = spec(rule, guards)
        policy = admissionregistration.ValidatingAdmissionPolicy(
            name, metadata={"name": policy_name}, spec=policy_spec, opts=self.own
        )
        binding: Any = binding_spec(policy_name, read_source(rule), guards) | {"validation_actions": _ACTIONS[action]}
        return admissionregistration.ValidatingAdmissionPolicyBinding(
            f"{name}-binding", metadata={"name": policy_name}, spec=binding, opts=self.after(policy)
        )

    def _default(
        self, name: str, what: str, guards: GuardsPlan
    ) -> admissionregistration.MutatingAdmissionPolicyBinding:
        metadata: Any = {"name": f"gpu-tenancy-default-{what}"}
        policy_spec: Any = mutation(what, guards)
        policy = admissionregistration.MutatingAdmissionPolicy(name, metadata=metadata, spec=policy_spec, opts=self.own)
        binding: Any = binding_spec(metadata["name"], {}, guards)
        return admissionregistration.MutatingAdmissionPolicyBinding(
            f"{name}-binding", metadata=metadata, spec=binding, opts=self.after(policy)
        )


def actions(guards: GuardsPlan) -> dict[str, str]:
    """The policies of a stack, each with its action: some deny whatever the action of the guards."""
    teams = guards.teams.values()
    chosen = {
        "gpu-requests": any(bounds.namespace.limits.gives_gpus for bounds in teams),
        "device-claims": guards.claims and bool(teams),
        # About members of teams, as RBAC denies.
        **dict.fromkeys(("queue-objects", "secrets", "accounts", "tokens", "priority", "expose"), guards.members),
    }
    denying = {name: "deny" for name, applies in chosen.items() if applies}
    if guards.action == "off" or not teams:
        return denying
    others = {
        **dict.fromkeys(("queue", "kueue-metadata", "operators", "release", "sizes", "status"), True),
        **dict.fromkeys(("devices", "grace", "owners"), True),
        "toleration": bool(guards.taints),
        **dict.fromkeys(("scheduling", "amount", "count", "ratio"), True),
        "images": bool(guards.registries),
        **dict.fromkeys(("queue-objects", "network", "expose", "disruption", "namespace"), True),
    }
    return {**denying, **{name: guards.action for name, applies in others.items() if applies and name not in denying}}


def binding_spec(policy: str, source: Mapping[str, Any], guards: GuardsPlan) -> dict[str, Any]:
    """The spec of the binding of a policy, without its actions: for the teams' namespaces, or for the cluster.

    System namespaces are excluded by name, whatever their labels.
    """
    key, value = guards.label
    spared = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(guards.spared)}
    selector = {"match_labels": {key: value}, "match_expressions": [spared]}
    of_teams = source.get("scope", "Namespaced") == "Namespaced"
    matching = {"match_resources": {"namespace_selector": selector}} if of_teams else {}
    return {"policy_name": policy, **matching}


def spec(name: str, guards: GuardsPlan, values: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The spec of the ValidatingAdmissionPolicy `gpu-tenancy-<name>`; `values` are CEL, by default the stack's."""
    source, values = read_source(name), values or cel_values(guards)
    unless = f"!({source['onlyIf']}) || " if "onlyIf" in source else ""
    variables = _filled(source, {**source.get("variables", {}), **source["violations"]}, values)
    return {
        "failure_policy": "Fail",
        **_matching(source, guards, values),
        "variables": _expressions({**_shared(source, (unless, *variables.values()), values), **variables}),
        "validations": [
            {
                "expression": f"{unless}size(variables.{violation}) == 0",
                "message_expression": f"string(variables.{violation}[0])",
                "message": f"violates the rule gpu-tenancy-{name}",
                "reason": "Forbidden",
            }
            for violation in source["violations"]
        ],
    }


def mutation(name: str, guards: GuardsPlan, values: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The spec of the MutatingAdmissionPolicy `gpu-tenancy-default-<name>`; `values` as for `spec`."""
    # If it cannot be evaluated, the object stays as it is, and the guards name the fix.
    source, values = read_source(name, "defaults"), values or cel_values(guards)
    variables = _filled(source, source.get("variables", {}), values)
    # Of a policy, each mutation sees what those before it have changed, but no patch what others of its mutation do.
    expressions = [
        f"!({mutation['onlyIf']}) ? [] :\n"
        + "\n+ ".join(f"({patch})" for patch in _filled(source, mutation["patches"], values).values())
        for mutation in source["mutations"].values()
    ]
    read = _expressions({**_shared(source, (*variables.values(), *expressions), values), **variables})
    return {
        "failure_policy": "Ignore",
        "reinvocation_policy": "Never",
        **_matching(source, guards, values),
        # The API server drops an empty list, which each deployment would then add again.
        **({"variables": read} if read else {}),
        "mutations": [{"patch_type": "JSONPatch", "json_patch": {"expression": text}} for text in expressions],
    }


def _filled(source: Mapping[str, Any], texts: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    shared = read_source("shared")
    own_values = {**shared["values"], **source.get("values", {})}
    marks = {**shared["expressions"], **values, **{name: cel.literal(value) for name, value in own_values.items()}}
    return {name: Template(text).substitute(marks) for name, text in texts.items()}


def _shared(source: Mapping[str, Any], texts: Iterable[str], values: Mapping[str, str]) -> dict[str, str]:
    """The shared variables that some expressions read, with their own dependencies, in order."""
    shared = _filled(source, read_source("shared")["variables"], values)
    names = set(_READ.findall(" ".join(texts)))
    for name in reversed([*shared]):
        if name in names:
            names.update(_READ.findall(shared[name]))
    return {name: text for name, text in shared.items() if name in names}


def _matching(source: Mapping[str, Any], guards: GuardsPlan, values: Mapping[str, str]) -> dict[str, Any]:
    conditions = read_source("shared")["conditions"]
    every = {"api_versions": ["*"], "scope": source.get("scope", "Namespaced")}
    rules = {
        field: [
            {**_resources(rule, guards), **every, "operations": rule.get("operations", ["CREATE", "UPDATE"])}
            for rule in source[key]
        ]
        for field, key in (("resource_rules", "resources"), ("exclude_resource_rules", "notFor"))
        if key in source
    }
    return {
        "match_constraints": rules,
        "match_conditions": _expressions(
            _filled(source, {name: conditions[name] for name in source["conditions"]}, values)
        ),
    }


def _expressions(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in texts.items()]


@cache
def read_source(name: str, folder: str = "policies") -> dict[str, Any]:
    """The source of a policy, or of one of `defaults`."""
    return read_table(Path(__file__).with_name(folder) / f"{name}.yaml")


def _resources(rule: Mapping[str, Any], guards: GuardsPlan) -> dict[str, list[str]]:
    if "kinds" not in rule:
        return {"api_groups": rule["groups"], "resources": rule["names"]}
    kinds = {
        "all": cel.KINDS,
        "jobs": [kind for kind in cel.KINDS if kind.is_job],
        "fromTemplate": [
            kind
            for kind in cel.KINDS
            if kind.counts_template and cel.queue_place(kind, guards.frameworks) not in ("templates", "never")
        ],
        "counted": _counted(guards),
        "countedAsOne": [kind for kind in _counted(guards) if not kind.groups],
        "sized": cel.SIZED,
        "timed": _timed(guards),
    }
    below = f"/{rule['subresource']}" if "subresource" in rule else ""
    groups = dict.fromkeys(kind.group for kind in kinds[rule["kinds"]])
    resources = dict.fromkeys(kind.plural + below for kind in kinds[rule["kinds"]])
    return {"api_groups": [*groups], "resources": [*resources]}


def _counted(guards: GuardsPlan) -> list[WorkloadKind]:
    return [kind for kind in cel.KINDS if kind.counts_template and cel.queue_place(kind, guards.frameworks) == "object"]


def _timed(guards: GuardsPlan) -> list[WorkloadKind]:
    """Kinds of jobs that Kueue queues as one, and can end."""
    return [
        kind
        for kind in cel.KINDS
        if kind.is_job and _is_queued(kind, guards) and cel.queue_place(kind, guards.frameworks) in {"object", "jobs"}
    ]


def cel_values(guards: GuardsPlan) -> dict[str, str]:
    """CEL of the values that the policies read as `$name`."""

    def queued(place: str) -> list[str]:
        return [key(kind) for kind in cel.KINDS if cel.queue_place(kind, guards.frameworks) == place]

    integrated = (key(kind) for kind in cel.KINDS if kind.group not in ("", "apps", "batch"))
    images = (prefix_expression(prefix) for prefix in (*guards.registries, *own_images()))
    values: dict[str, object] = {
        "exempt": guards.exempt,
        "makers": guards.makers,
        "ofKubernetes": OF_KUBERNETES,
        "volcano": VOLCANO,
        "trainer": [guards.trainer] if guards.trainer else [],
        "caches": [guards.caches] if guards.caches else [],
        "teamLabel": guards.label[0],
        "teamLabelValue": guards.label[1],
        "spared": guards.spared,
        "gpuResources": guards.names,
        "gpuTaints": list(dict.fromkeys(taints[0] for taints in guards.taints.values())),
        # CEL has no type for the keys of an empty map.
        "gpuTaintOf": {resource: taints[:1] for resource, taints in guards.taints.items()} or {"": [""]},
        "taintsOf": guards.taints or {"": [""]},
        "taintValue": GPU_TAINT_VALUE,
        "hold": HOLD,
        "claimsAreGpus": not guards.claims,
        "uncovered": UNCOVERED,
        "usualSizes": USUAL_SIZES,
        "usualLimits": ",".join(f"{name}={amount}" for name, amount in format_amounts(USUAL_LIMITS).items()),
        "maxPerNode": guards.max_per_node,
        "priorityClasses": list(guards.priorities),
        "priorities": guards.priorities,
        "preempting": guards.preempting,
        "runtimes": list(SHIPPED.values()),
        "allowedImages": "|".join(images),
        "registries": guards.registries,
        "accountsOfPods": ACCOUNTS_OF_PODS,
        "workloadAccount": ACCOUNT,
        "channelClass": CHANNEL_CLASS,
        "elastic": guards.elastic,
        "csiDrivers": guards.csi,
        "graceOfJobs": guards.grace.jobs,
        "graceOfServers": guards.grace.servers,
        "stays": STAYS,
        "waitsForRay": format_amounts(WAITS_FOR_RAY),
        "margin": MARGIN,
        # Whose spec, of what Kueue queues, has the field.
        "endingThemselves": [
            key(kind)
            for kind in _timed(guards)
            if [step.field for step in kind.deadline[-2:]] == ["spec", "activeDeadlineSeconds"]
            and not any(step.form for step in kind.deadline)
        ],
        "internal": [*guards.internal.items()],
        "public": [*guards.public.items()],
        "kinds": [key(kind) for kind in cel.KINDS],
        "parents": [kind.plural for kind in cel.SIZED if kind.has_children],
        "servers": [key(kind) for kind in cel.KINDS if kind.work == "serving"],
        "counted": [key(kind) for kind in _counted(guards)],
        "versions": {key(kind): kind.version for kind in _counted(guards) if kind.version},
        "countedNames": [f"{kind.kind.lower()}-" for kind in _counted(guards)],
        "gangs": [key(kind) for kind in cel.KINDS if kind.gang and kind.work],
        "groupKinds": [key(kind) for kind in _counted(guards) if kind.groups],
        "groupLabels": [name for kind in _counted(guards) if kind.groups for name in (kind.label, kind.groups.index)],
        "revised": [key(kind) for kind in _counted(guards) if kind.revised],
        "writtenKeys": WRITTEN_BY_KUEUE,
        "ownOwners": [*_OWNERS, *(key(kind) for kind in cel.KINDS if kind.operator)],
        "trustedOwners": list(dict.fromkeys((*_OWNERS, *integrated, *guards.external))),
        "queuedByJobs": queued("jobs"),
        "queuedByPods": queued("templates"),
        "queuedByEither": queued("either"),
        "neverQueued": queued("never"),
        "queuedKinds": [key(kind) for kind in cel.KINDS if _is_queued(kind, guards)],
    }
    return {
        **{name: cel.literal(value) for name, value in values.items()},
        **cel.places_of_pods(),
        "gangSpecs": cel.gang_specs(),
        "sizes": cel.sizes(kind for kind in cel.KINDS if kind.counts_template),
        **cel.pod_counts(),
        "patches": cel.patches(),
        "secretNames": cel.secret_names(),
    }


def _is_queued(kind: WorkloadKind, guards: GuardsPlan) -> bool:
    """Whether Kueue holds back an object of the kind, or its pods, until a queue admits it."""
    place = cel.queue_place(kind, guards.frameworks)
    return kind.integration in guards.frameworks if place == "object" else place != "never"
