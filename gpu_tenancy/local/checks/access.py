"""Checks that people have the rights of their roles and no others, by the API server's answers for each person."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias

from gpu_tenancy.access.live import Caller, review
from gpu_tenancy.access.planned import grants, people, shown
from gpu_tenancy.access.rules import WHOLE, Grant, Question, Resource, allowed, identity
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.request import CONNECTIONS
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.model.plan.people import ADMIN, AUDITOR, Subject
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec.people import Person

_KUEUE: Final = "kueue.x-k8s.io"
_NETWORK: Final = "networking.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"

# Verb and resource that distinguish the roles.
ABILITIES: Final[Mapping[str, tuple[str, Resource]]] = {
    "read workloads": ("get", Resource("", "pods", namespaced=True)),
    "submit jobs": ("create", Resource("batch", "jobs", namespaced=True)),
    "open shells": ("create", Resource("", "pods/exec", namespaced=True)),
    "read Secrets": ("get", Resource("", "secrets", namespaced=True)),
    "stop the queue": ("patch", Resource(_KUEUE, "localqueues", namespaced=True)),
}

# Verbs and resources of administrators only.
RESERVED: Final = (
    ("patch", Resource("", "resourcequotas", namespaced=True)),
    ("patch", Resource("", "limitranges", namespaced=True)),
    ("delete", Resource(_NETWORK, "networkpolicies", namespaced=True)),
    ("create", Resource(_RBAC, "rolebindings", namespaced=True)),
    ("create", Resource("", "serviceaccounts/token", namespaced=True)),
    ("patch", Resource("", "pods/ephemeralcontainers", namespaced=True)),
    ("create", Resource(_KUEUE, "localqueues", namespaced=True)),
    ("patch", Resource("", "namespaces", namespaced=False)),
    ("patch", Resource(_KUEUE, "clusterqueues", namespaced=False)),
    ("patch", Resource(_KUEUE, "cohorts", namespaced=False)),
    ("impersonate", Resource("", "users", namespaced=False)),
    ("delete", Resource("admissionregistration.k8s.io", "validatingadmissionpolicies", namespaced=False)),
)

# Maximum number of people without a role in a team that are checked, so that the time grows with the teams only.
_OTHERS: Final = 8

_Names: TypeAlias = Mapping[Subject, Person]
_Asked: TypeAlias = tuple[Subject, Question]
_Answers: TypeAlias = Mapping[_Asked, bool]


def check_access(cluster: Cluster, tree: Tree) -> Iterator[Check]:
    """Checks roles in each team, and rights of administrators only; nothing if no team has people."""
    planned, names = grants(tree), people(tree)
    admins = {grant.subject for grant in planned if grant.role == ADMIN}
    tenants = sorted({grant.subject for grant in planned} - admins)
    if not tenants:
        return
    with ThreadPoolExecutor(CONNECTIONS) as pool:

        def answer(asked: _Asked) -> bool:
            who, question = asked
            return review(cluster, Caller.of(who), question)

        def answered(questions: Iterable[_Asked]) -> _Answers:
            asked = list(questions)
            return dict(zip(asked, pool.map(answer, asked), strict=True))

        for team in tree.stack.teams:
            # Everybody with a role in the team or a role to read all teams, and some others.
            inside = {grant.subject for grant in planned if grant.namespace == team or grant.role == AUDITOR}
            others = [who for who in tenants if who not in inside]
            around = [*(who for who in tenants if who in inside), *others[:_OTHERS]]
            answers = answered((who, Question(*ABILITIES[one], team)) for who in around for one in ABILITIES)
            yield _roles(team, around, answers, planned, names)
        places = {who: sorted({grant.namespace for grant in planned if grant.subject == who}) for who in tenants}
        changes = [
            (who, Question(verb, resource, place))
            for who in tenants
            for verb, resource in RESERVED
            for place in (places[who] if resource.namespaced else [WHOLE])
        ]
        yield _reserved(answered(changes), names)


def _roles(team: str, around: Iterable[Subject], answers: _Answers, planned: Iterable[Grant], names: _Names) -> Check:
    able: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    wrong: list[str] = []
    for who in around:
        own = [grant for grant in planned if grant.subject in identity(who)]
        questions = {ability: Question(verb, resource, team) for ability, (verb, resource) in ABILITIES.items()}
        may = {ability: answers[who, question] for ability, question in questions.items()}
        should = dict(zip(questions, allowed(own, list(questions.values())), strict=True))
        able[tuple(ability for ability in may if may[ability])].append(shown(who, names))
        wrong += [
            f"{shown(who, names)} may {'' if may[ability] else 'not '}{ability}, against the stack"
            for ability in ABILITIES
            if may[ability] != should[ability]
        ]
    seen = [f"{', '.join(able[abilities])}: {', '.join(abilities)}" for abilities in sorted(able, key=len) if abilities]
    others = len(able[()])
    seen += [f"{others} other{'s' * (others > 1)}: nothing"] if others else []
    return Check(f"people may do in {team} what their role says, and nothing else", "; ".join(wrong or seen), not wrong)


def _reserved(answers: _Answers, names: _Names) -> Check:
    allowed_ones = [
        f"{shown(who, names)} may {question.verb} {question.resource} in {question.place or 'the cluster'}"
        for (who, question), may in answers.items()
        if may
    ]
    count = len({who for who, _ in answers})
    seen = f"{count} {'users and groups' if count > 1 else 'user or group'}, {len(answers)} requests: all rejected"
    promise = "only administrators change quotas, queues, networks, roles and guards"
    return Check(promise, "; ".join(allowed_ones) or seen, not allowed_ones)
