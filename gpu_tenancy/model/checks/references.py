"""Checks of references: names that exist, people that the cluster can know, and accounts that guards exempt."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Literal

from gpu_tenancy.base.problems import ANY, Path, Problem, dotted, unknown
from gpu_tenancy.model.catalogue.access import owner_of
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.plan.environment import gang_amounts
from gpu_tenancy.model.plan.guards import accounts
from gpu_tenancy.model.plan.identities import ACCOUNTS_OF_PODS
from gpu_tenancy.model.plan.people import TEAM_ROLES
from gpu_tenancy.model.plan.pods import flavor_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.clouds.aws import AwsCluster
from gpu_tenancy.model.spec.clouds.gcp import GcpCluster
from gpu_tenancy.model.spec.people import Members, Person, person
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.spec.tenancy import Shares
from gpu_tenancy.model.spec.workloads import Server, Training, Workload


def reference_problems(tree: Tree) -> Iterator[Problem]:
    """References to names that do not exist, and reserved or conflicting names."""
    stack = tree.stack
    yield from _priorities(stack)
    yield from _cohorts(tree)
    for name, team in stack.teams.items():
        yield from _team(tree, name, team)
        yield from _workloads(tree, name, team)
        yield from _queue(stack, name, team)
    yield from _same_names(stack)
    for server in stack.servers:
        own, burst = flavor_of(tree, server.team, server), server.burst if server.has_service else None
        if own and burst and own.name == burst.flavor:
            rule, place = "is the flavor of the server itself", (*server.path, "burst", "flavor")
            yield Problem(place, rule, "set another one, or raise replicas.max", own.name)
    for name, dataset in stack.datasets.items():
        for key in ("teams", "writers"):
            for index, team in enumerate(getattr(dataset, key)):
                yield from known_in(team, stack.teams, "team", ("datasets", name, key, index), ("teams",))


def mounted_at(workload: Workload, kind: Literal["dataset", "volume"], name: str) -> Path:
    """The key by which a workload mounts a dataset or volume: its model, or its mounts."""
    model = workload.model if isinstance(workload, Server) else None
    return ("model", kind) if model and getattr(model, kind) == name else (f"{kind}s", name)


def _same_names(stack: Stack) -> Iterator[Problem]:
    """PersistentVolumes, Volcano queues and Karpenter's NodePools: `ml` + `a-b` and `ml-a` + `b` have the same name."""
    volumes = [(team, name) for name, dataset in stack.datasets.items() for team in stack.teams if dataset.is_of(team)]
    gangs = [(name, flavor) for name, team in stack.teams.items() for flavor in team.gangs]
    for kind, pairs in (("volume", volumes), ("queue", gangs)):
        seen: dict[str, str] = {}
        for team, name in pairs:
            first = seen.setdefault(f"{team}-{name}", team)
            if first != team:
                path = ("datasets", name) if kind == "volume" else ("teams", team, "gangs", name)
                rule = f"the {kind} of team {team} would be named {team}-{name}, like one of team {first}"
                yield Problem(path, rule, "rename one of them", about=(("teams",),))
    for name, pool in stack.pools.items() if getattr(stack.cluster, "autoscaler", "") == "karpenter" else ():
        if pool.nodes.min and f"{name}-base" in stack.pools:
            rule = f"is also the name of Karpenter's NodePool for the minimum of pool {name}"
            yield Problem(("pools", f"{name}-base"), rule, "rename one of them", about=(("pools", name),))


def known_in(name: str | None, known: Iterable[str], kind: str, path: Path, of: Path) -> Iterator[Problem]:
    """A problem if a name is set that is not among the known ones, which are defined at `of`."""
    names = set(known)
    if name is not None and name not in names:
        rule, fix = unknown(kind, name, names)
        yield Problem(path, rule, fix if names else f"define it under {dotted(of)}", about=((*of, name),))


def _priorities(stack: Stack) -> Iterator[Problem]:
    defaults = [name for name, priority in stack.priorities.items() if priority.default]
    for name in defaults[1:]:
        rule = f"is set for {defaults[0]} too, but only one class can be the default"
        yield Problem(("priorities", name, "default"), rule, "remove one of them", "true")
    for name in stack.priorities:
        if name.startswith("system-"):
            yield Problem(("priorities", name), "uses the prefix system-, which Kubernetes reserves", "rename it", name)
    for name in stack.metrics.service_levels.waiting:
        yield from _priority(stack, name, ("metrics", "serviceLevels", "waiting", name))


def _priority(stack: Stack, name: str | None, path: Path) -> Iterator[Problem]:
    return known_in(name, stack.priorities, "priority class", path, ("priorities",))


def _cohorts(tree: Tree) -> Iterator[Problem]:
    cohorts = tree.stack.cohorts
    roots = [name for name, cohort in cohorts.items() if cohort.parent is None]
    root = next(iter(roots), "")
    if cohorts and not roots:
        yield Problem(("cohorts",), "has no root: every cohort has a parent", "leave the parent of the topmost out")
    for name in roots[1:]:
        rule = f"has no parent, but {root} is the root already, and quota cannot be borrowed between roots"
        yield Problem(("cohorts", name), rule, f"set parent: {root}", about=(("cohorts", root),))
    for name, cohort in cohorts.items():
        place = ("cohorts", name, "parent")
        yield from known_in(cohort.parent, cohorts, "cohort", place, ("cohorts",))
        yield from _flavors(tree, cohort, ("cohorts", name))
        if loops(tree, name):
            rule = "creates a cycle of cohorts, in which Kueue admits no workloads"
            yield Problem(place, rule, "set a parent that is closer to the root", cohort.parent)
    if root and (cohorts[root].gpus or cohorts[root].quota):
        place = ("cohorts", root, "gpus" if cohorts[root].gpus else "quota")
        rule = "must not be set for the root cohort, whose quota is the supply of the pools"
        about = (("cohorts", root, "parent"),)
        yield Problem(place, rule, "remove it, or set it for a cohort below the root", about=about)


def loops(tree: Tree, cohort: str) -> bool:
    """Whether a cohort's parents lead back to it."""
    seen: set[str] = set()
    above = tree.parents.get(cohort)
    while above is not None and above not in seen:
        if above == cohort:
            return True
        seen.add(above)
        above = tree.parents.get(above)
    return False


def _flavor(tree: Tree, name: str | None, path: Path) -> Iterator[Problem]:
    known = [pool.flavor or pool_name for pool_name, pool in (tree.stack.pools | dict(tree.stack.elsewhere)).items()]
    for problem in known_in(name, known, "flavor", path, ("pools",)):
        # A pool that could not be read may have this flavor.
        yield replace(problem, about=(*problem.about, ("pools", ANY, "flavor")))


def _flavors(tree: Tree, shares: Shares, path: Path) -> Iterator[Problem]:
    for key in ("gpus", "quota"):
        for flavor in getattr(shares, key):
            place = (*path, key, flavor)
            yield from _flavor(tree, flavor, place)
            if key == "gpus" or shares.quota[flavor].model_fields_set & {"guaranteed", "limit"}:
                fix = f"set {dotted((*path, 'quota', flavor))}.cpu and .memory instead"
                yield from _without_gpus(tree, flavor, place, fix)


def _without_gpus(tree: Tree, flavor: str, path: Path, fix: str) -> Iterator[Problem]:
    if flavor in tree.flavors and tree.flavors[flavor].resource is None:
        about = tuple(("pools", pool.name) for pool in tree.flavors[flavor].pools)
        yield Problem(path, f"sets GPUs of flavor {flavor}, which has none", fix, about=about)


def _team(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    stack, path = tree.stack, ("teams", name)
    owner = owner_of(name)  # Guards and webhooks exclude the namespaces of the cluster's own pods.
    if owner is None and name == stack.metrics.prometheus.namespace:
        owner = "Prometheus (metrics.prometheus.namespace)"
    if owner:
        yield Problem(path, f"is a reserved namespace of {owner}", "rename the team", name)
    if stack.cohorts:
        yield from known_in(team.cohort, stack.cohorts, "cohort", (*path, "cohort"), ("cohorts",))
    elif team.cohort not in {None, tree.root}:
        rule = f"unknown cohort '{team.cohort}': the stack defines no cohorts"
        yield Problem((*path, "cohort"), rule, "define it under cohorts", about=(("cohorts",),))
    yield from _priority(stack, team.priority, (*path, "priority"))
    for index, priority in enumerate(team.compute.priorities):
        yield from _priority(stack, priority, (*path, "compute", "priorities", index))
    yield from _flavors(tree, team, path)
    for flavor, gang in team.gangs.items():
        place = (*path, "gangs", flavor)
        yield from _flavor(tree, flavor, place)
        if gang.effective_limit:
            yield from _without_gpus(tree, flavor, place, "remove guaranteed and limit, and set cpu and memory")
        elif flavor in tree.flavors and not gang_amounts(tree.flavors[flavor], gang):
            yield Problem(place, "bounds neither CPU nor memory on a flavor without GPUs", "set cpu or memory")
    for size, spec in team.notebooks.sizes.items() if team.notebooks else ():
        yield from _flavor(tree, spec.flavor, (*path, "notebooks", "sizes", size, "flavor"))


def _workloads(tree: Tree, name: str, team: Team) -> Iterator[Problem]:
    stack, path = tree.stack, ("teams", name)
    for kind, workloads in (("serving", team.serving), ("training", team.training)):
        for workload, spec in workloads.items():
            place = (*path, kind, workload)
            yield from _flavor(tree, spec.flavor, (*place, "flavor"))
            for role, of_role in spec.roles.items() if isinstance(spec, Training) else ():
                yield from _flavor(tree, of_role.flavor, (*place, "roles", role, "flavor"))
            yield from _priority(stack, spec.priority, (*place, "priority"))
            for dataset in spec.datasets:
                at = (*place, *mounted_at(spec, "dataset", dataset))
                yield from known_in(dataset, stack.datasets, "dataset", at, ("datasets",))
                if dataset in stack.datasets and not stack.datasets[dataset].is_of(name):
                    rule = f"is not a dataset of team {name}"
                    yield Problem(at, rule, f"add {name} to datasets.{dataset}.teams, or remove it", dataset)
            # Each group of a server of several nodes has a StatefulSet and a Service of its own.
            server, _, index = workload.rpartition("-")
            of = team.serving.get(server)
            if of and of.grouped and index.isdecimal() and str(int(index)) == index and int(index) < of.most_replicas:
                rule = f"is also the name of a group of server {server}, which has a Service of that name"
                yield Problem(place, rule, "rename one of them", workload, about=((*path, "serving", server),))
    for workload in sorted(team.serving.keys() & team.training.keys()):
        rule = "is also the name of a server, whose Service would select the job's pods"
        yield Problem((*path, "training", workload), rule, "rename one of them", workload)


def _queue(stack: Stack, name: str, team: Team) -> Iterator[Problem]:
    if team.queue is None:
        return
    path = ("teams", name, "queue")
    if team.queue == name:
        yield Problem(path, "is the team itself", "remove queue, or set it to another team", name)
        return
    yield from known_in(team.queue, [other for other in stack.teams if other != name], "team", path, ("teams",))
    owner = stack.teams.get(team.queue)
    if owner and owner.queue is not None:
        yield Problem(path, f"has no queue: it uses the queue of {owner.queue}", f"set {owner.queue}", team.queue)


def people_problems(tree: Tree) -> Iterator[Problem]:
    """People that the cluster cannot know, or that include everybody of a team; and exemptions from guards."""
    stack = tree.stack
    for path, entry in _entries(stack):
        found = person(entry)
        if found is None:
            yield from known_in(entry, stack.people.names, "name", path, ("people", "names"))
        else:
            yield from (replace(problem, about=(("cluster",),)) for problem in _form(stack, found, path))
            if found.kind == "serviceaccount":
                yield from _account(stack, found, path)
    # Service accounts whose account is that of pods, or whose cloud identity cannot be.
    for team, spec in stack.teams.items():
        for name, account in spec.service_accounts.items():
            place = ("teams", team, "serviceAccounts", name)
            if name in ACCOUNTS_OF_PODS:
                rule = f"is the ServiceAccount of the pods of team {team}, which has no rights"
                yield Problem(place, rule, "rename the service account", name)
            if account.subject and (wrong := stack.cluster.account_rule(team, name, account.subject)):
                yield Problem((*place, "subject"), *wrong, account.subject, about=(("cluster", "identityProvider"),))
    for index, account in enumerate(stack.guards.exempt if stack.guards.action != "off" else ()):
        yield from _exempt(stack, account, ("guards", "exempt", index))


def _entries(stack: Stack) -> Iterator[tuple[Path, str]]:
    yield from ((("people", "names", name), entry) for name, entry in stack.people.names.items())
    for key in ("admins", "auditors"):
        yield from ((("people", key, index), entry) for index, entry in enumerate(getattr(stack.people, key)))
    for section, nodes in (("cohorts", stack.cohorts), ("teams", stack.teams)):
        for name, node in nodes.items():
            members: Members = node.members
            for role in TEAM_ROLES:
                for index, entry in enumerate(getattr(members, f"{role}s")):
                    yield (section, name, "members", f"{role}s", index), entry


def _form(stack: Stack, who: Person, path: Path) -> Iterator[Problem]:
    """The forms of the cluster's directory: https://kubernetes.io/docs/reference/access-authn-authz/authentication/."""
    cluster, value = stack.cluster, str(who)
    directory = clouds()[cluster.cloud].people
    form = directory.group if who.kind == "group" else directory.user
    if who.kind == "serviceaccount":
        return
    if who.kind == "role":
        if not directory.principals:
            fix = f"write group: and {directory.group.write}" if directory.group else "write another person"
            if directory.group and directory.group.write.startswith("a group as"):
                fix = "write group:NAME, with the Kubernetes group of its access entry"
            rule = "is an IAM role or user, which only a cluster with cloud: aws can map to rights"
            yield Problem(path, rule, fix, value)
        elif isinstance(cluster, AwsCluster) and who.name == cluster.node_role:
            rule = "is the role of the nodes, whose access entry cannot have groups"
            yield Problem(path, rule, "write the role that people assume", value)
    elif form is None:
        rule = f"is a {who.kind}, but clusters on {cluster.cloud} know only IAM roles and users"
        yield Problem(path, rule, "write the ARN of the role that its members assume", value)
    elif not form.fits(who.name):
        yield Problem(path, f"is not {form.write}", f"write {who.kind}: and {form.write}", value)
    elif (
        who.kind == "group" and isinstance(cluster, GcpCluster) and cluster.create and not cluster.create.security_group
    ):
        rule = "is a group, but GKE finds Google groups only through a security group"
        yield Problem(path, rule, "set cluster.create.securityGroup, and make the group a member of it", value)


def _account(stack: Stack, who: Person, path: Path) -> Iterator[Problem]:
    """A service account of a team's namespace is usable by everybody who may create pods there."""
    namespace, _, name = who.name.partition("/")
    if namespace in stack.teams and name in ACCOUNTS_OF_PODS:
        rule = f"is the account of all workloads of team {namespace}, which has no rights"
        yield Problem(path, rule, f"define a service account under teams.{namespace}.serviceAccounts", str(who))
    elif namespace in stack.teams and (path[:2] != ("teams", namespace) or path[3] == "leads"):
        rule = f"is in the namespace of team {namespace}: its researchers can run pods with this account"
        fix = f"use an account of no team, or list it under teams.{namespace}.members.researchers"
        yield Problem(path, rule, fix, str(who))


_EVERYBODY: Final = frozenset({"system:authenticated", "system:serviceaccounts", "system:unauthenticated"})


def _exempt(stack: Stack, account: str, path: Path) -> Iterator[Problem]:
    """Exemptions from guards that include tenants."""
    if account in _EVERYBODY:
        fix = "list only the accounts to exempt, or set guards.action: off"
        yield Problem(path, "would exempt everyone", fix, account)
    for team in stack.teams:
        if account == accounts(team) or account.startswith(f"system:serviceaccount:{team}:"):
            rule = f"is in the namespace of team {team}: anyone who can edit that namespace can use it"
            fix, about = "exempt an account in a namespace that belongs to no team", (("teams", team),)
            yield Problem(path, rule, fix, account, about=about)
