"""Roles of people, and their bindings in the cluster and in the namespaces of teams.

API Priority and Fairness keeps requests of teams to the API server apart from those of operators and of each other:
https://kubernetes.io/docs/concepts/cluster-administration/flow-control/. The flows are users: by namespace, a user
could fill the queues of another team with requests that RBAC rejects only afterwards. A user fills only some of the
queues, which shuffle sharding chooses, so the requests of all others pass.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.quantity import CHANNELS
from gpu_tenancy.model.catalogue.access import Rule, roles, rules_of
from gpu_tenancy.model.plan.environment import Environment
from gpu_tenancy.model.plan.fabric import claimed_on
from gpu_tenancy.model.plan.identities import identities, service_accounts
from gpu_tenancy.model.plan.needs import there
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.storage import takes_snapshots
from gpu_tenancy.model.spec.people import Members, Person, person

TeamRole: TypeAlias = Literal["lead", "researcher", "viewer"]
TEAM_ROLES: Final[tuple[TeamRole, ...]] = ("lead", "researcher", "viewer")  # roles in a team; each includes the next
PREFIX: Final = "gpu-tenancy-"  # start of the names of ClusterRoles and bindings
ADMIN: Final = "cluster-admin"  # ClusterRole of administrators, which Kubernetes has
AUDITOR: Final = f"{PREFIX}auditor"
MEMBER: Final = f"{PREFIX}member"  # ClusterRole that members of teams have in the whole cluster


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """A subject of a binding: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-subjects."""

    kind: Literal["Group", "User", "ServiceAccount"]
    name: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class TeamBinding:
    """A RoleBinding in a team's namespace, with its subjects as the stack and as the API server knows them."""

    role: TeamRole
    people: tuple[Person, ...]
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """Rights of people in the cluster."""

    roles: Mapping[str, tuple[Rule, ...]]  # ClusterRoles in use, with the rules that apply in the cluster
    admins: tuple[Subject, ...]  # subjects of `cluster-admin`
    auditors: tuple[Subject, ...]
    members: tuple[Subject, ...]  # subjects of the role that all members of teams have in the cluster
    principals: tuple[Person, ...]  # IAM roles and users, for the access entries of EKS
    logins: tuple[Person, ...]  # logins that the stack configures: of principals, and of people with a cloud role
    commands: tuple[str, ...]  # commands for the cloud's administrator to let the others log in


def resolved(names: Mapping[str, str], entries: Iterable[str]) -> tuple[Person, ...]:
    """The people of a list of people and `people.names`, each once, sorted."""
    found = (person(names.get(entry, entry)) for entry in entries)
    return tuple(sorted({one for one in found if one}))


def subject(who: Person) -> Subject:
    """How the API server knows a person: an IAM role or user is the group that its access entry gives it."""
    if who.kind == "serviceaccount":
        namespace, _, name = who.name.partition("/")
        return Subject("ServiceAccount", name, namespace)
    if who.kind == "role":
        return Subject("Group", group_of(who))
    return Subject("Group" if who.kind == "group" else "User", who.name)


def group_of(principal: Person) -> str:
    """The Kubernetes group of an IAM role or user.

    EKS rejects groups that start with `system:`, `eks:`, `aws:`, `amazon:` or `iam:`:
    https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateAccessEntry.html.
    """
    account, _, path = principal.name.split(":", 4)[4].partition(":")
    return f"gpu-tenancy:{account}:{path}"


def bindings(tree: Tree, team: str) -> tuple[TeamBinding, ...]:
    """RoleBindings of members and service accounts of a team and of cohorts above; a person has the widest role."""
    cohorts, names = tree.stack.cohorts, tree.stack.people.names
    above = [cohorts[name] for name in tree.above(tree.cohort_of(tree.queue_of(team))) if name in cohorts]
    members: list[Members] = [node.members for node in (tree.stack.teams[team], *above)]
    entries = {role: [entry for one in members for entry in getattr(one, f"{role}s")] for role in TEAM_ROLES}
    left = {role: set(resolved(names, entries[role])) for role in TEAM_ROLES}
    for account in service_accounts(tree.stack, team):
        left[account.role] |= {*account.people}
    higher: set[Person] = set()
    made: list[TeamBinding] = []
    for role in TEAM_ROLES:
        people = tuple(sorted(left[role] - higher))
        higher |= left[role]
        if people:
            made.append(TeamBinding(role, people, subjects(people)))
    return tuple(made)


def subjects(people: Iterable[Person]) -> tuple[Subject, ...]:
    """The subjects of people, each once, sorted."""
    return tuple(sorted({subject(who) for who in people}))


def access(tree: Tree) -> AccessPlan | None:
    """Rights of people in the cluster, beside the bindings of each team; None if the stack has no people."""
    stack = tree.stack
    by_team = [binding for team in stack.teams for binding in bindings(tree, team)]
    names = stack.people.names
    admins, auditors = resolved(names, stack.people.admins), resolved(names, stack.people.auditors)
    members = subjects(who for binding in by_team for who in binding.people)
    used = dict.fromkeys(role for role in TEAM_ROLES if any(binding.role == role for binding in by_team))
    cluster = [name for name, people in (("member", members), ("auditor", auditors)) if people]
    everybody = {*admins, *auditors, *(who for binding in by_team for who in binding.people)}
    if not everybody:
        return None
    of_service_accounts = {account.identity for account in identities(stack)}
    principals = tuple(sorted(who for who in everybody - of_service_accounts if who.kind == "role"))
    needed = {who: login for who in sorted(everybody) if (login := stack.cluster.login(who))}
    return AccessPlan(
        roles={name: rules(tree, name) for name in roles() if name in {*used, *cluster}},
        admins=subjects(admins),
        auditors=subjects(auditors),
        members=members,
        principals=principals,
        logins=(*principals, *(who for who, login in needed.items() if login.given and who not in of_service_accounts)),
        commands=tuple(login.command for login in needed.values() if not login.given),
    )


def rules(environment: Environment, role: str) -> tuple[Rule, ...]:
    """The rules of a role that apply to the cluster's operators and to snapshots, hosts and claims of devices."""
    snapshots, claimed = takes_snapshots(environment.stack.teams), claimed_on(environment)
    exposed = any(
        (team.notebooks and team.notebooks.expose) or any(server.expose for server in team.serving.values())
        for team in environment.stack.teams.values()
    )
    return tuple(
        rule
        for rule in rules_of(role)
        if (rule.operator is None or there(environment, rule.operator))
        and (snapshots or not rule.snapshots)
        and (exposed or not rule.routes)
        and (claimed or not rule.claims)
        and (CHANNELS in claimed or not rule.domains)
    )


def accounts(namespace: str) -> str:
    """The group of all service accounts in a namespace."""
    return f"system:serviceaccounts:{namespace}"


FLOW_NAME: Final = "gpu-tenancy-teams"  # name of the FlowSchema and of its PriorityLevelConfiguration
FLOW_PRECEDENCE: Final = 8000
"""Before `service-accounts` (9000), whose level operators share, and after the control plane's (up to 900)."""
FLOW_SHARES: Final = 40
"""Of the seats of the API server, to the 245 of Kubernetes' own levels: as many as `workload-high`, the level of
the controllers of kube-system."""
FLOW_LENDABLE: Final = 50  # percent of its seats that others use while teams do not
FLOW_BORROWED: Final = 100  # percent of its seats that teams borrow at most
FLOW_QUEUES: Final = 128
"""Queues, of which each flow has `FLOW_HAND`: two users have the same ones in one of 5 billion cases."""
FLOW_HAND: Final = 6
FLOW_LENGTH: Final = 50  # requests that wait in one queue


def flows(teams: Mapping[str, tuple[TeamBinding, ...]]) -> tuple[Subject, ...]:
    """API users of teams: members by their bindings, and all service accounts in the teams' namespaces."""
    members = {subject for bindings in teams.values() for binding in bindings for subject in binding.subjects}
    return tuple(sorted({*members, *(Subject("Group", accounts(team)) for team in teams)}))
