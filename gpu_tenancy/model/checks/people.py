"""Checks of people: names that exist, forms that the directory knows, service accounts, and exemptions from guards."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Path, Problem
from gpu_tenancy.model.catalogue.clouds import Directory, clouds
from gpu_tenancy.model.checks.references import known_in
from gpu_tenancy.model.plan.guards import accounts
from gpu_tenancy.model.plan.identities import ACCOUNTS_OF_PODS
from gpu_tenancy.model.plan.people import TEAM_ROLES
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.people import Members, Person, person


def people_problems(tree: Tree) -> Iterator[Problem]:
    """People that the cluster cannot know, or that would be everybody of a team."""
    stack = tree.stack
    for path, entry in _entries(stack):
        found = person(entry)
        if found is None:
            yield from known_in(entry, stack.people.names, "name", path, ("people", "names"))
        else:
            yield from _form(stack, found, path)
            yield from _account(stack, found, path)
    yield from _service_accounts(stack)


def _entries(stack: Stack) -> Iterator[tuple[Path, str]]:
    for name, entry in stack.people.names.items():
        yield ("people", "names", name), entry
    for key in ("admins", "auditors"):
        for index, entry in enumerate(getattr(stack.people, key)):
            yield ("people", key, index), entry
    for section, nodes in (("cohorts", stack.cohorts), ("teams", stack.teams)):
        for name, node in nodes.items():
            members: Members = node.members
            for role in TEAM_ROLES:
                for index, entry in enumerate(getattr(members, f"{role}s")):
                    yield (section, name, "members", f"{role}s", index), entry


def _form(stack: Stack, who: Person, path: Path) -> Iterator[Problem]:
    """The forms of the cluster's directory: https://kubernetes.io/docs/reference/access-authn-authz/authentication/."""
    cloud = stack.cluster.cloud
    directory = clouds()[cloud].people
    if who.kind == "role":
        if not directory.principals:
            yield Problem(path, _NO_PRINCIPALS, _fix(directory), str(who))
        elif isinstance(stack.cluster, AwsCluster) and who.name == stack.cluster.node_role:
            rule = "is the role of the nodes, whose access entry cannot have groups"
            yield Problem(path, rule, "write the role that people assume", str(who), about=(("cluster", "nodeRole"),))
        return
    if who.kind == "serviceaccount":
        return
    form = directory.group if who.kind == "group" else directory.user
    if form is None:
        rule = f"is a {who.kind}, but clusters on {cloud} know only IAM roles and users"
        yield Problem(path, rule, "write the ARN of the role that its members assume", str(who))
    elif not form.fits(who.name):
        yield Problem(path, f"is not {form.write}", f"write {who.kind}: and {form.write}", str(who))
    elif who.kind == "group" and isinstance(stack.cluster, GcpCluster):
        creation = stack.cluster.create
        if creation and creation.security_group is None:
            rule = "is a group, but GKE finds Google groups only through a security group"
            yield Problem(path, rule, "set cluster.create.securityGroup, and make the group a member of it", str(who))


_NO_PRINCIPALS = "is an IAM role or user, which only a cluster with cloud: aws can map to rights"


def _fix(directory: Directory) -> str:
    if directory.group and directory.group.write.startswith("a group as"):
        return "write group:NAME, with the Kubernetes group of its access entry"
    return f"write group: and {directory.group.write}" if directory.group else "write another person"


def _account(stack: Stack, who: Person, path: Path) -> Iterator[Problem]:
    """A service account of a team's namespace is usable by everybody who may create pods there."""
    namespace, _, name = who.name.partition("/")
    if who.kind != "serviceaccount" or namespace not in stack.teams:
        return
    if name in ACCOUNTS_OF_PODS:
        rule = f"is the account of all workloads of team {namespace}, which has no rights"
        yield Problem(path, rule, f"define a service account under teams.{namespace}.serviceAccounts", str(who))
    elif path[:2] != ("teams", namespace) or path[3] == "leads":
        rule = f"is in the namespace of team {namespace}: its researchers can run pods with this account"
        fix = f"use an account of no team, or list it under teams.{namespace}.members.researchers"
        yield Problem(path, rule, fix, str(who))


def _service_accounts(stack: Stack) -> Iterator[Problem]:
    """Robots whose account is that of pods, or whose cloud identity cannot be."""
    for team, spec in stack.teams.items():
        for name, account in spec.service_accounts.items():
            path = ("teams", team, "serviceAccounts", name)
            if name in ACCOUNTS_OF_PODS:
                rule = f"is the ServiceAccount of the pods of team {team}, which has no rights"
                yield Problem(path, rule, "rename the service account", name)
            if account.subject and (wrong := stack.cluster.account_rule(team, name, account.subject)):
                yield Problem((*path, "subject"), *wrong, account.subject, about=(("cluster", "identityProvider"),))


_EVERYBODY: Final = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


def guard_problems(tree: Tree) -> Iterator[Problem]:
    """Exemptions that include tenants."""
    stack = tree.stack
    if stack.guards.action == "off":
        return
    for index, account in enumerate(stack.guards.exempt):
        path = ("guards", "exempt", index)
        if account in _EVERYBODY:
            yield Problem(
                path,
                "would exempt everyone",
                "list only the accounts to exempt, or set guards.action: off",
                account,
            )
        team = next((name for name in stack.teams if _of(name, account)), None)
        if team:
            yield Problem(
                path,
                f"is in the namespace of team {team}: anyone who can edit that namespace can use it",
                "exempt an account in a namespace that belongs to no team",
                account,
                about=(("teams", team),),
            )


def _of(team: str, account: str) -> bool:
    return account == accounts(team) or account.startswith(f"system:serviceaccount:{team}:")
