"""Rules about people: what RBAC cannot refuse to members of a team who may create pods or Secrets.

The rules ask the API server's own authorizer, so they follow the roles: who may read Secrets may use them in pods, and
who may create tokens of service accounts may run pods with these accounts. They always deny, as RBAC does.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from gpu_tenancy.model.plan.guards import GuardsPlan
from gpu_tenancy.model.plan.service_accounts import ACCOUNTS_OF_PODS

from ..conventions import QUEUE_PRIORITY
from ..pods import ACCOUNT
from .expressions import CONTAINERS, SHARED, fact, first_of_each, is_kind, literal
from .kinds import KINDS
from .objects import queue_objects
from .policies import EVERYWHERE, Resources, Rule, exempt, resources_of

_TRAIN_JOB: Final = "trainer.kubeflow.org/TrainJob"
_ISSUED: Final = "resource('serviceaccounts').subresource('token')"
"""Tokens of service accounts: who may create them may act as these accounts anyway."""
_STATIC: Final = "kubernetes.io/service-account-token"


def people_rules(guards: GuardsPlan) -> Iterator[Rule]:
    """The rules about members of teams."""
    conditions = {"not-exempt": exempt(guards, ())["not-exempt"], "not-everywhere": f"!{EVERYWHERE}"}
    yield replace(queue_objects(guards), always_denies=True)
    for rule in (_secrets(), _accounts(), _tokens(), _priority()):
        yield replace(rule, conditions=conditions)


def _rule(name: str, resources: tuple[Resources, ...], variables: dict[str, str], only_if: str) -> Rule:
    """A rule that always denies, with the variable `fault`.

    The authorizer is asked in `only_if`, because messages cannot ask it.
    """
    return Rule(name, resources, {}, variables, faults=("fault",), only_if=only_if, always_denies=True)


def _secrets() -> Rule:
    """Who may not read Secrets must not run pods that read them.

    A pod's `imagePullSecrets` are read by the kubelet only, and not by its containers.
    """
    bad = "!(n in variables.allowed)"
    env = (
        "c.?env.orValue([]).filter(e, e.?valueFrom.?secretKeyRef.hasValue())"
        ".map(e, e.valueFrom.secretKeyRef.?name.orValue(''))"
    )
    sources = "c.?envFrom.orValue([]).filter(e, has(e.secretRef)).map(e, e.secretRef.?name.orValue(''))"
    volumes = "p.?volumes.orValue([])"
    mounted = f"{volumes}.filter(v, v.?secret.?secretName.hasValue()).map(v, v.secret.secretName)"
    drivers = (
        f"{volumes}.filter(v, v.?csi.?nodePublishSecretRef.hasValue())"
        ".map(v, v.csi.nodePublishSecretRef.?name.orValue(''))"
    )
    projected = (
        f"{volumes}.map(v, v.?projected.?sources.orValue([]).filter(s, has(s.secret))"
        f".map(s, s.secret.?name.orValue('')).filter(n, {bad}))"
    )
    containers = f"({CONTAINERS} + p.?ephemeralContainers.orValue([])).map(c, ({env} + {sources}).filter(n, {bad}))"
    return _pod_rule(
        "secrets",
        _may("get", "resource('secrets')"),
        fact("workload-secrets"),
        f"({first_of_each(containers)} + ({mounted} + {drivers}).filter(n, {bad}) + {first_of_each(projected)})",
        "'uses Secret ' + n + ', but you may not read Secrets in this namespace; ask a lead of the team to submit it,"
        " or add the Secret to workloadSecrets of the team in the stack'",
    )


def _accounts() -> Rule:
    """Who may not create tokens of service accounts must not run pods that get such tokens.

    Neither the default account of a namespace nor that of the team's workloads has any right.
    """
    return _pod_rule(
        "accounts",
        _may("create", _ISSUED),
        literal(("", *ACCOUNTS_OF_PODS)),
        "[p.?serviceAccountName.orValue(''), p.?serviceAccount.orValue('')].filter(n, !(n in variables.allowed))",
        f"'sets service account ' + n + ', whose rights its pod would have; set serviceAccountName: {ACCOUNT}'",
    )


def _pod_rule(name: str, may: str, allowed: str, used: str, message: str) -> Rule:
    """A rule about what pods use.

    Args:
        name: of the rule.
        may: CEL; whether the user may use everything.
        allowed: CEL of the names that everybody may use, as a list; later CEL has it as `variables.allowed`.
        used: CEL of the other names that the pod `p` uses, as a list.
        message: CEL of the message about the name `n`.
    """
    patches = (
        "object.spec.?runtimePatches.orValue([]).map(r, r.?trainingRuntimeSpec.?template.?spec.?replicatedJobs"
        ".orValue([]).filter(j, j.?template.?spec.?template.?spec.hasValue()).map(j, j.template.spec.template.spec))"
    )
    initializers = (
        "[object.spec.?initializer.?dataset, object.spec.?initializer.?model].filter(i, i.hasValue()).map(i,"
        " dyn({'env': dyn(i.value().?env.orValue([])), 'envFrom': dyn(i.value().?secretRef.hasValue()"
        " ? [{'secretRef': i.value().secretRef}] : [])}))"
    )
    trainer = "[dyn({'env': object.spec.?trainer.?env.orValue([])})]"
    in_each = first_of_each(f"l.map(p, {used})")
    return _rule(
        name,
        (*resources_of(KINDS), Resources("", ("pods/ephemeralcontainers",))),
        {
            **SHARED,
            "allowed": allowed,
            # A TrainJob has no pods, but parts of those of its runtime.
            "lists": (
                f"[variables.pods] + ({is_kind(_TRAIN_JOB)} ? [[dyn({{'containers': {trainer} + {initializers}}})]]"
                f" + {patches} : [])"
            ),
            "fault": f"{first_of_each(f'variables.lists.map(l, {in_each})')}.map(n, {message})",
        },
        f"(variables.respecified || ({is_kind(_TRAIN_JOB)} && object.spec != oldObject.spec)) && !{may}",
    )


def _tokens() -> Rule:
    """A Secret of this type gets a token of any service account of the namespace, which never expires."""
    return _rule(
        "tokens",
        (Resources("", ("secrets",)),),
        {
            "fault": (
                f"object.?type.orValue('') == '{_STATIC}' ? ['has type {_STATIC}, which gets a token that never"
                " expires; use a TokenRequest'] : []"
            ),
        },
        f"!{_may('create', _ISSUED)}",
    )


def _priority() -> Rule:
    """Who submits a workload chooses its priority; later, only who may change Workloads does."""
    may = _may("patch", "resource('workloads')", "kueue.x-k8s.io")
    label = f".?metadata.?labels[?'{QUEUE_PRIORITY}'].orValue('')"
    return _rule(
        "priority",
        resources_of(KINDS, ("UPDATE",)),
        {
            "fault": (
                f"object{label} != oldObject{label} ? ['changes label {QUEUE_PRIORITY}, which only leads of the team"
                " may change; ask one of them, or submit the workload again'] : []"
            ),
        },
        f"!{may}",
    )


def _may(verb: str, resource: str, group: str = "") -> str:
    """Whether the user may do something in the namespace of the request."""
    return f"authorizer.group({literal(group)}).{resource}.namespace(request.namespace).check('{verb}').allowed()"
