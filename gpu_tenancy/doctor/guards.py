"""Checks that the guards of a stack are in force: their live specs, and a server-side dry run for each."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from string import Template
from typing import Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, list_at, map_at, text_at
from gpu_tenancy.base.texts import plural
from gpu_tenancy.clouds.clients import DeniedError
from gpu_tenancy.doctor.results import Question, Row, answers, judged
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import FORBIDDEN, ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.model.plan import Plan, TeamPlan
from gpu_tenancy.model.plan.guards import Bounds, GuardsPlan
from gpu_tenancy.model.plan.people import Subject, TeamRole
from gpu_tenancy.model.yaml import read_table

TABLE: Final = Path(__file__).with_name("attempts.yaml")
POLICY: Final = "gpu-tenancy-"
_BINDING: Final = "ValidatingAdmissionPolicyBinding"
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
# Also with constrained impersonation, whose verbs begin with `impersonate:`.
_IMPERSONATE: Final = re.compile(r"cannot impersonate\S* ")
_RBAC: Final = re.compile(r"cannot (create|patch) resource")

Outcome: TypeAlias = Literal["denied", "warning", "accepted"]
_EXPECTED: Final[Mapping[str, Outcome]] = {"Deny": "denied", "Warn": "warning"}
# Rights in all namespaces of subjects that guards exempt.
_EVERYWHERE: Final[tuple[Manifest, ...]] = (
    {"verb": "patch", "group": "admissionregistration.k8s.io", "resource": "validatingadmissionpolicies"},
    {"verb": "create", "group": "batch", "resource": "jobs"},
)


class Attempt(BaseModel):
    """A request that a guard must reject; `attempts.yaml` explains the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: tuple[TeamRole, ...] = ()
    create: dict[str, object] = {}
    patch: dict[str, str] = {}
    change: dict[str, object] = {}
    needs: Literal["", "gives_gpus", "ratio"] = ""
    completed: bool = False
    untried: str = ""


@cache
def attempts() -> Mapping[str, Attempt]:
    """Attempts by guard."""
    return {name: Attempt.model_validate(row) for name, row in read_table(TABLE).items() if not name.startswith(".")}


@dataclass(frozen=True, slots=True)
class _Answer:
    """Response to an attempt."""

    outcome: Outcome
    policies: tuple[str, ...]  # that rejected or warned
    why: str  # message of the API server
    member: bool  # tried as a member of the team, or else as the caller


@dataclass(frozen=True, slots=True)
class _Place:
    """A team's namespace; with `exempt`, not all guards bind the caller."""

    team: TeamPlan
    bounds: Bounds
    exempt: bool

    def member(self, attempt: Attempt) -> Subject | None:
        """The member to impersonate."""
        by_role = {binding.role: binding.subjects[0] for binding in self.team.namespace.bindings}
        return next((by_role[role] for role in attempt.by if role in by_role), None)

    def values(self, guards: GuardsPlan) -> dict[str, str]:
        """Values of the variables in attempts."""
        gpu, most = next(iter(guards.max_per_node.items()), ("nvidia.com/gpu", 0))
        taint = (guards.taints.get(gpu) or (gpu,))[0]
        priority = self.bounds.classes[0] if self.bounds.classes else ""
        namespace = self.team.namespace.name
        return {"namespace": namespace, "gpu": gpu, "taint": taint, "many": str(most + 1), "class": priority}

    def applies(self, attempt: Attempt, *, defaults: bool) -> bool:
        """Whether the attempt breaks the rule, and a member of the team could make it."""
        needed = not attempt.needs or bool(getattr(self.team.namespace.limits, attempt.needs))
        somebody = not self.team.namespace.bindings or self.member(attempt) is not None
        return needed and somebody and not attempt.untried and not (attempt.completed and defaults)


def _guard_rows(
    cluster: Cluster, plan: Plan, rendered: Iterable[Mapping[str, Json]], team: str, as_rendered: Collection[str]
) -> Iterator[Row]:
    """Rows of guards by namespace that differ from the stack, and of guards as in the stack.

    Requests are made as team members, or as the caller without the right to impersonate. `as_rendered` are names of
    policies that are as in the stack, with their bindings. Raises ApiError if the caller may not ask for its own
    identity.
    """
    expected: dict[str, Outcome] = {}
    for one in (one for one in rendered if one.get("kind") == _BINDING):
        actions = list_at(one, "spec", "validationActions")
        outcomes: list[Outcome] = [outcome for action, outcome in _EXPECTED.items() if action in actions]
        expected[text_at(one, "metadata", "name").removeprefix(POLICY)] = outcomes[0] if outcomes else "accepted"
    exempt, guards = _is_exempt(cluster, plan.guards), plan.guards
    teams = [one for one in plan.teams if team in {"", one.namespace.name}]
    places = [_Place(one, guards.teams[one.namespace.name], exempt) for one in teams]

    def row(item: tuple[str, _Place]) -> Row | None:
        guard, place = item
        attempt = attempts()[guard]
        if not place.applies(attempt, defaults=guards.defaults):
            return None
        filled = Attempt.model_validate(_substituted(cast("Json", attempt.model_dump()), place.values(guards)))
        return _row(guard, expected[guard], place, _tried(cluster, filled, place), intact=POLICY + guard in as_rendered)

    fine: dict[str, list[Row]] = {}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for found in pool.map(row, product(expected, places)):
            if found and found.verdict == "OK":
                fine.setdefault(found.subject.partition(" ")[0], []).append(found)
            elif found:
                yield found
    for guard, same in fine.items():
        seen = ", ".join(dict.fromkeys(row.available for row in same))
        yield Row("guard", f"{guard} in {plural(len(same), 'namespace')}", same[0].needed, seen, "OK")


def _is_exempt(cluster: Cluster, guards: GuardsPlan) -> bool:
    def asked(group: str, kind: str, **spec: Json) -> dict[str, Json]:
        review: Manifest = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": {}, **spec}
        return map_at(cluster.create(review), "status")

    me = map_at(asked("authentication", "SelfSubjectReview"), "userInfo")
    names = {text_at(me, "username"), *map(str, list_at(me, "groups"))}
    return bool(names & {*guards.exempt, *guards.makers}) or any(
        at(asked("authorization", "SelfSubjectAccessReview", spec={"resourceAttributes": {**right}}), "allowed") is True
        for right in _EVERYWHERE
    )


def _substituted(value: Json, values: Mapping[str, str]) -> Json:
    if isinstance(value, str):
        return Template(value).substitute(values)
    if isinstance(value, list):
        return [_substituted(item, values) for item in value]
    if isinstance(value, dict):
        items = ((_substituted(key, values), _substituted(item, values)) for key, item in value.items())
        return {str(key): item for key, item in items if item != ""}
    return value


def _tried(cluster: Cluster, attempt: Attempt, place: _Place) -> _Answer | None:
    # None if the namespace has no object to change.
    target = None
    if patch := attempt.patch:
        kind, namespace = (patch["apiVersion"], patch["kind"]), place.team.namespace.name
        if name := patch.get("name"):
            target = Reference(*kind, name, namespace if cluster.resource(*kind).namespaced else "")
        elif listed := cluster.list(*kind, namespace=namespace, metadata_only=True):
            target = Reference.of({**listed[0]})
        else:
            return None
    if member := place.member(attempt):
        user, group = member.name, ""
        if member.kind == "ServiceAccount":
            user = f"system:serviceaccount:{member.namespace}:{member.name}"
        elif member.kind == "Group":
            user, group = "tenancy-doctor", member.name
        answer = _asked(cluster.impersonating(user, group), attempt, target, member=True)
        if not _IMPERSONATE.search(answer.why):
            return answer
    return _asked(cluster, attempt, target, member=False)


def _asked(cluster: Cluster, attempt: Attempt, target: Reference | None, *, member: bool) -> _Answer:
    try:
        warnings = cluster.tried(target, cast("Manifest", attempt.change if target else attempt.create))
    except ApiError as error:
        return _Answer("denied", tuple(_POLICY.findall(error.message)), error.message, member)
    policies = tuple(name for warning in warnings for name in _POLICY.findall(warning))
    return _Answer("warning" if policies else "accepted", policies, "", member)


def _row(guard: str, expected: Outcome, place: _Place, answer: _Answer | None, *, intact: bool) -> Row:
    # `intact`: policy and binding are as in the stack.
    namespace = place.team.namespace.name
    subject, needed = f"{guard} in {namespace}", "audit" if expected == "accepted" else expected
    make = partial(Row, "guard", subject, needed)
    if answer is None:
        return make("not tried: nothing to change", "unknown", f"run it again when {namespace} has a job")
    if POLICY + guard in answer.policies:
        fix = "deploy the stack again, and read the audit log of its policy binding"
        return judged("guard", subject, needed, answer.outcome, fits=answer.outcome == expected, fix=fix)
    by = answer.policies[0] if answer.policies else "RBAC" if _RBAC.search(answer.why) else answer.why
    if answer.outcome == "denied" and answer.member:
        seen = f"not asked: denied first by {by}"
        where = f"see the rows of {POLICY}{guard}"
        return make(f"{seen}; policy as in the stack", "OK") if intact else make(seen, "unknown", where)
    if not answer.member and (answer.outcome == "denied" or place.exempt):
        reason = f"denied by {by}" if answer.outcome == "denied" else "guards do not bind you"
        fix = "run it as somebody who may impersonate users and groups, on a stack whose teams have members"
        return make(f"not tried as a member: {reason}", "unknown", fix)
    if expected == "accepted":
        return make("accepted", "unknown", "look for it in the audit log; its action has no other effect")
    fix = "deploy the stack again: the policy or its binding is missing, or does not match the namespace"
    return make(answer.outcome, "missing", fix)


_GROUP: Final = "admissionregistration.k8s.io"
# Defaults of the API server in a policy, which change nothing:
# https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/validating-admission-policy-v1/.
_DEFAULTS: Final[Mapping[str, Json]] = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
_FIX: Final = "deploy the stack again, and read the audit log to find who changed it"


def live_rows(
    cluster: Cluster, planned: Plan, manifests: Iterable[Mapping[str, Json]], team: str = ""
) -> Iterator[Row]:
    """Checks policies, then attempts for each guard in a namespace or all. Raises ConsoleError for an unknown team."""
    if team and team not in planned.guards.teams:
        raise ConsoleError(f"{team}: no team of the stack", f"specify one of {', '.join(planned.guards.teams)}")
    policies = [one for one in manifests if text_at(one, "apiVersion").partition("/")[0] == _GROUP]
    questions: list[Question] = []
    for one in policies:
        kind, name = text_at(one, "kind"), text_at(one, "metadata", "name")
        questions.append(Question(kind, name, "as in the stack", partial(_compared, cluster, one)))
    compared = [*answers(questions)]
    yield from compared
    differing = {row.subject for row in compared if row.verdict != "OK"}
    same = {row.subject for row in compared} - differing
    yield from _guard_rows(cluster, planned, policies, team, same)


def _compared(cluster: Cluster, wanted: Mapping[str, Json]) -> Iterator[Row]:
    kind, name = text_at(wanted, "kind"), text_at(wanted, "metadata", "name")
    try:
        live = cluster.get(text_at(wanted, "apiVersion"), kind, name)
    except ApiError as error:
        if error.status == FORBIDDEN:
            raise DeniedError(f"get on {kind.lower()} in {_GROUP}") from error
        raise
    differing = [*differences(map_at(wanted, "spec"), map_at(live, "spec"), "spec")] if live else []
    seen = f"{differing[0]} differs" if differing else "as in the stack" if live else "missing"
    yield judged(kind, name, "as in the stack", seen, fits=bool(live) and not differing, fix=_FIX)


def differences(wanted: Json, live: Json, path: str) -> Iterator[str]:
    """Paths of differing values, except defaults of the API server."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for key in {**wanted, **live}:
            default = _DEFAULTS.get(key)
            yield from differences(wanted.get(key, default), live.get(key, default), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live):
        for index, (item, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(item, other, f"{path}[{index}]")
    elif (wanted or live) and wanted != live:  # the API server leaves out empty lists
        yield path
