"""Numbers of the report, recomputed from the rendered Kubernetes objects alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import builders
import pytest
from builders import EXISTING, Data
from cli_builders import Project
from page_reader import Page
from rendered_stacks import stack_of_repository
from repository import ROOT
from review_solver import GPUS, Key, Manifest, Node, World

from gpu_tenancy.base.guarantee import Guarantee
from gpu_tenancy.base.quantity import amounts, is_extended
from gpu_tenancy.engine.project import preview
from gpu_tenancy.model.outlook import Pool, StackOutlook, outlook
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.review.build import review
from gpu_tenancy.review.page import page


def generated(seed: int) -> Data:
    drawn = Random(seed)  # noqa: S311 - it keeps no secret
    even = drawn.random() < 0.25
    groups = ["one", "two", "three"][: drawn.randint(1, 3)]
    cohorts: dict[str, Data] = {"org": {}}
    for index, name in enumerate(groups):
        cohorts[name] = {"parent": "org" if index == 0 or drawn.random() < 0.6 else groups[index - 1]}
        if not even and drawn.random() < 0.7:
            least = drawn.choice([0, 4, 8, 12])
            bound = {"limit": least + drawn.choice([0, 4, 8, 16])} if drawn.random() < 0.7 else {}
            cohorts[name]["gpus"] = {"h100": {"guaranteed": least, **bound}}
    teams: Data = {}
    for number in range(drawn.randint(2, 5)):
        sure = drawn.choice([0, 0, 2, 4, 8])
        most = sure + drawn.choice([0, 2, 4, 8, 16])
        cohort = drawn.choice([*groups, "org"])
        keeps = {"lends": False} if drawn.random() < 0.5 else {}
        weight = {"weight": drawn.choice([1, 2, 3])} if even else {}
        gpus = {"h100": {"guaranteed": sure, "limit": most}}
        teams[f"team-{number}"] = builders.team(cohort=cohort, gpus=gpus, **keeps, **weight)
    if even:
        _bound(drawn, cohorts, teams)
    return {
        "fairness": "even" if even else "hierarchical",
        "cluster": EXISTING,
        "pools": {"cpu": builders.pool("m7i.8xlarge", 2), "h100": builders.pool(nodes=drawn.randint(2, 5))},
        "cohorts": cohorts,
        "teams": teams,
    }


def _bound(drawn: Random, cohorts: dict[str, Data], teams: Data) -> None:
    """Sets a limit or a weight of some groups, which makes them Cohorts also with even sharing."""

    def guaranteed(name: str) -> int:
        own = [each["gpus"]["h100"]["guaranteed"] for each in teams.values() if each["cohort"] == name]
        return sum(own) + sum(guaranteed(group) for group, spec in cohorts.items() if spec.get("parent") == name)

    for name in [name for name in cohorts if name != "org"]:
        kind = drawn.choice(["none", "limit", "limit", "weight"])
        if kind == "limit":
            least = guaranteed(name)
            cohorts[name]["gpus"] = {"h100": {"guaranteed": least, "limit": least + drawn.choice([0, 2, 4, 8])}}
        elif kind == "weight":
            cohorts[name]["weight"] = drawn.choice([1, 2])


def coherent(count: int) -> list[Data]:
    """The first `count` random stacks that are valid."""
    return list(islice((stack for seed in range(20 * count) if not builders.errors(stack := generated(seed))), count))


HOURS = 730
BACK = {"Any": "immediately", "LowerPriority": "from lower priorities", "Never": "when borrowers finish"}


@dataclass(frozen=True)
class Case:
    """A stack as summary, as objects and as page."""

    now: StackOutlook
    world: World
    page: str


@pytest.fixture(scope="module", params=stack_names())
def case(request: pytest.FixtureRequest) -> Case:
    found = stack_of_repository(request.param)
    done = review(found, ROOT)
    return Case(done.now, World([dict(made.manifest) for made in found.objects]), page(done))


def dash(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}\N{EN DASH}{most}"


def percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)}%"


def bounds(world: World) -> dict[tuple[str, str, str], str]:
    """By team, flavor and scheduler: CPU and memory of the largest job that the guarantee covers."""
    nominal = {
        (queue["metadata"]["name"], flavor["name"]): {
            name: value
            for one in flavor["resources"]
            for name, value in amounts({one["name"]: one["nominalQuota"]}).items()
        }
        for queue in world.of("ClusterQueue")
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
    }
    return {
        (name, flavor, "Kueue"): Guarantee(flavor, resource, quotas).bound
        for flavor, resource in world.keys
        for name in world.queues
        if (quotas := nominal.get((name, flavor)))
    }


def kueue(world: World) -> dict[tuple[str, str, str], tuple[int, int, tuple[int, int], int, str, str]]:
    """By team, flavor and scheduler: guaranteed, limit, busy, alone, lends, how it reclaims."""
    found: dict[tuple[str, str, str], tuple[int, int, tuple[int, int], int, str, str]] = {}
    for key in world.keys:
        busy = world.busy(key)
        for name, node in world.queues.items():
            limit = world.limit(node, key) or 0
            if key not in node.nominal or limit == 0:
                continue
            sure = node.nominal[key]
            lends = node.lending.get(key) != 0
            back = "" if not sure else BACK[node.reclaim] if lends else "never lent"
            figures = (sure, limit, busy[name], world.alone(node, key))
            found[name, key[0], "Kueue"] = (*figures, "yes" if lends else "no", back or "\N{EN DASH}")
    for gang in world.gangs:
        span = (gang.guaranteed, gang.most)
        found[gang.team, gang.flavor, "Volcano"] = (*span, span, gang.most, "no", "never lent")
    return found


def gangs(world: World, key: Key) -> int:
    return sum(gang.guaranteed for gang in world.gangs if (gang.flavor, gang.resource) == key)


def limits(world: World, key: Key) -> int:
    queues = sum(world.limit(node, key) or 0 for node in world.queues.values() if key in node.nominal)
    return queues + sum(gang.most for gang in world.gangs if (gang.flavor, gang.resource) == key)


def guaranteed(world: World, key: Key) -> int:
    root = world.cohorts[world.root]
    return sum(world.total(node, key) for node in world.below(root.name)) + gangs(world, key)


def rows(shown: Page, label: str) -> list[list[str]]:
    """Rows of a table, without CPU and memory, which the worlds of these tests do not have."""
    return [row for row in shown.tables[label][1:] if not any(cell.endswith(("CPUs", "memory")) for cell in row[:2])]


def owned(world: World, listed: list[list[str]]) -> list[list[str]]:
    """The rows without teams that share a queue: their rows name the queue, and have no numbers."""
    shared = {(team, f"queue of {queue}") for team, queue in world.teams.items() if team != queue}
    guests = [row for row in listed if row[1].startswith("queue of ")]
    assert {(row[0], row[1]) for row in guests} == shared
    assert {cell for row in guests for cell in row[2:]} <= {"\N{EN DASH}"}
    return [row for row in listed if row not in guests]


@pytest.mark.parametrize("sections", coherent(24))
def test_figures_of_random_stacks_agree_with_their_queues(sections: Data, tmp_path: Path) -> None:
    project = Project.at(tmp_path / "project")
    project.write("drawn", sections)
    found = preview("drawn", project.folder)
    world = World([dict(made.manifest) for made in found.objects])
    shown = {key: line[:4] for key, line in told(outlook(found.stack)).items() if line[1]}
    assert shown == {key: line[:4] for key, line in kueue(world).items()}


def told(now: StackOutlook) -> dict[tuple[str, str, str], tuple[int, int, tuple[int, int], int, str, str]]:
    """The figures of `kueue` as a summary has them."""
    found: dict[tuple[str, str, str], tuple[int, int, tuple[int, int], int, str, str]] = {}
    for team in now.teams:
        for held in (held for held in team.holdings if is_extended(held.resource)):
            figures = (held.guaranteed, held.limit, (held.busy.minimum, held.busy.maximum), held.alone)
            found[team.name, held.flavor, held.scheduler] = (
                *figures,
                "yes" if held.lends else "no",
                held.back or "\N{EN DASH}",
            )
    return found


def test_guarantees_and_shares_agree_with_the_queues(case: Case) -> None:
    assert told(case.now) == kueue(case.world)


def test_the_page_shows_the_numbers_of_the_queues(case: Case) -> None:
    shown = Page(case.page)
    expected = kueue(case.world)
    listed = {(row[0], row[1], row[2]): row[4:] for row in owned(case.world, rows(shown, "Guarantees and limits"))}
    beside = {key: row.pop(1) for key, row in listed.items()}
    assert {key: text for key, text in beside.items() if key[2] != "Volcano"} == {
        key: text for key, text in bounds(case.world).items() if key in expected
    }
    assert listed == {
        key: [str(sure), str(limit), str(limit - sure), lends]
        for key, (sure, limit, _, _, lends, _) in expected.items()
    }
    teams = {
        (row[0], row[1], row[2]): [row[3], *row[5:]]
        for row in owned(case.world, rows(shown, next(label for label in shown.tables if label.endswith("each team"))))
    }
    assert teams == {
        key: [str(sure), dash(*busy), str(alone), back] for key, (sure, _, busy, alone, _, back) in expected.items()
    }


def test_sums_of_flavors_match_queues_and_cohorts(case: Case) -> None:
    world = case.world
    assert [
        supply.flavor for supply in case.now.supply if supply.capacity.maximum and is_extended(supply.resource)
    ] == [supply.flavor for supply in case.now.supply if (supply.flavor, supply.resource) in world.keys]
    shown = {row[0]: row for row in rows(Page(case.page), "Guarantees and capacity")}
    for supply in (supply for supply in case.now.supply if is_extended(supply.resource)):
        key = (supply.flavor, supply.resource)
        most = world.supply(key) + gangs(world, key)
        sure, all_ = guaranteed(world, key), limits(world, key)
        assert (supply.capacity.maximum, supply.guaranteed, supply.limits) == (most, sure, all_)
        line = shown[supply.flavor]
        assert line[3] == dash(supply.capacity.minimum, most)
        assert [line[4], line[6], line[7], line[8], line[10]] == [
            str(sure),
            percent(sure, most),
            str(most - sure),
            str(all_),
            percent(all_, most),
        ]


def test_figures_of_groups_agree_with_their_cohorts(case: Case) -> None:
    world = case.world

    def held(node: Node, key: Key) -> tuple[int, int, int | None]:
        limit = world.limit(node, key) if node.parent else world.supply(key)
        return node.nominal.get(key, 0), world.total(node, key), limit

    resources = {supply.flavor: supply.resource for supply in case.now.supply if is_extended(supply.resource)}
    told = {
        group.name: {flavor: share for flavor, share in group.shares.items() if flavor in resources}
        for group in case.now.groups
    }
    expected = {
        name: {flavor: held(node, (flavor, resource)) for flavor, resource in resources.items()}
        for name, node in world.cohorts.items()
    }
    assert {name: told[name] for name in expected} == expected


def test_a_group_without_a_cohort_is_the_sum_of_its_queues(case: Case) -> None:
    groups = {group.name: group for group in case.now.groups}

    def queues(name: str) -> list[Node]:
        below = [node for inner in groups[name].groups for node in queues(inner)]
        return [*(case.world.queues[team] for team in groups[name].teams), *below]

    without = [group for group in case.now.groups if group.name not in case.world.cohorts]
    assert not without or case.world.fair
    for group in without:
        for supply in (supply for supply in case.now.supply if is_extended(supply.resource)):
            key = (supply.flavor, supply.resource)
            own, guaranteed, limit = group.shares[supply.flavor]
            nodes = queues(group.name)
            assert (own, guaranteed) == (0, sum(node.nominal.get(key, 0) for node in nodes))
            reach = min(case.world.supply(key), sum(case.world.limit(node, key) or 0 for node in nodes))
            assert limit is None or limit >= reach


def test_namespace_quota_admits_the_teams_limit(case: Case) -> None:
    teams = {team.name: team for team in case.now.teams}
    for team in case.now.teams:
        hard: dict[str, int] = {}
        for quota in case.world.of("ResourceQuota"):
            if quota["metadata"]["namespace"] == team.name:
                hard |= {name: int(amount) for name, amount in quota["spec"]["hard"].items() if GPUS in name}
        reach: dict[str, int] = {}
        shared = teams[team.queue].holdings if team.shares else ()
        held = (*team.holdings, *(holding for holding in shared if holding.scheduler == "Kueue"))
        for holding in (holding for holding in held if is_extended(holding.resource)):
            name = f"requests.{holding.resource}"
            reach[name] = reach.get(name, 0) + holding.limit
        room = {name: amount - reach.get(name, 0) for name, amount in hard.items() if amount != reach.get(name, 0)}
        assert room in ({}, _waiting_in_rollouts(case.world, team.name))


def _waiting_in_rollouts(world: World, team: str) -> dict[str, int]:
    """GPUs of the pods that a rollout of a team adds while it removes others."""
    found: dict[str, int] = {}
    for server in (one for one in world.of("Deployment") if one["metadata"]["namespace"] == team):
        bounds = server["spec"]["strategy"]["rollingUpdate"]
        for name, amount in server["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].items():
            if GPUS in name and bounds["maxUnavailable"]:
                found[f"requests.{name}"] = found.get(f"requests.{name}", 0) + bounds["maxSurge"] * int(amount)
    return {name: amount for name, amount in found.items() if amount}


def test_costs_are_quotas_at_the_flavors_prices(case: Case) -> None:
    prices = {supply.flavor: supply.price for supply in case.now.supply}
    for team in case.now.teams:
        own = [
            (prices[flavor], sure, limit)
            for (name, flavor, _), (sure, limit, *_) in kueue(case.world).items()
            if name == team.name
        ]
        own += [
            (prices[holding.flavor], holding.guaranteed, holding.limit)
            for holding in team.holdings
            if not is_extended(holding.resource)
        ]
        for which, usd in enumerate((team.cost.guaranteed, team.cost.limit)):
            assert usd.known == pytest.approx(sum((price or 0) * amounts[which] * HOURS for price, *amounts in own))
            assert bool(usd.unpriced) == any(price is None and amounts[which] for price, *amounts in own)


def test_prices_follow_pools_and_nodes(case: Case) -> None:
    for supply in case.now.supply:
        if supply.resource == "memory":
            assert supply.price == 0
            continue
        flavor = supply.flavor.removesuffix("CPUs").rstrip() or "cpu"
        pools = [pool for pool in case.now.pools if pool.flavor == flavor and pool.nodes.maximum]
        if any(pool.node_price is None for pool in pools):
            assert supply.price is None
            continue
        dollars = sum((pool.node_price or 0) * pool.nodes.maximum for pool in pools)
        assert supply.price == pytest.approx(dollars / sum(units(pool, supply.resource) for pool in pools))


def test_bill_has_the_nodes_of_minimum_guarantees_and_limits(case: Case) -> None:
    """The nodes of each figure have what it needs, cost their price, and one node less has not."""
    lines = {line.title.partition(" (")[0]: line for line in case.now.bill.lines if line.part.endswith("U nodes")}
    for pool in (pool for pool in case.now.pools if pool.nodes.maximum):
        numbers, costs = lines[pool.name].numbers, lines[pool.name].costs
        least = pool.nodes.maximum if pool.capacity == "reserved" else pool.nodes.minimum
        assert numbers[0] == least <= numbers[1] <= numbers[2] <= pool.nodes.maximum
        for number, usd in zip(numbers, costs, strict=True):
            assert usd.known == pytest.approx((pool.node_price or 0) * number * HOURS)
            assert bool(usd.unpriced) == (pool.node_price is None and number > 0)
    for supply in (supply for supply in case.now.supply if is_extended(supply.resource)):
        pools = [pool for pool in case.now.pools if pool.flavor == supply.flavor and pool.gpus]
        for figure, need in ((1, supply.guaranteed), (2, min(supply.limits, supply.capacity.maximum))):
            nodes = {pool.name: lines[pool.name].numbers[figure] for pool in pools if pool.name in lines}
            more = [pool for pool in pools if nodes.get(pool.name, 0) > lines[pool.name].numbers[0]]
            have = sum(pool.gpus * nodes.get(pool.name, 0) for pool in pools)
            assert need <= have < need + max((pool.gpus for pool in more), default=have + 1)
    always, guaranteed, limit = (figure.usd.known for figure in case.now.bill.figures)
    assert always <= guaranteed <= limit


def units(pool: Pool, resource: str) -> int:
    """GPUs of all nodes of a pool, or their CPUs in thousandths."""
    return (pool.node["cpu"] if resource == "cpu" else pool.gpus) * pool.nodes.maximum


def scaled(world: World, namespace: str, name: str) -> tuple[int, int]:
    """Minimum and maximum replicas of a server: of its autoscaler, else of its Deployment."""
    for autoscaler in (*world.of("HorizontalPodAutoscaler"), *world.of("ScaledObject")):
        spec: Mapping[str, int] = autoscaler["spec"]
        if autoscaler["metadata"]["namespace"] == namespace and autoscaler["spec"]["scaleTargetRef"]["name"] == name:
            least, most = (
                ("minReplicas", "maxReplicas") if "maxReplicas" in spec else ("minReplicaCount", "maxReplicaCount")
            )
            return spec[least], spec[most]
    replicas = next(
        deployment["spec"]["replicas"]
        for deployment in world.of("Deployment")
        if (deployment["metadata"]["namespace"], deployment["metadata"]["name"]) == (namespace, name)
    )
    return replicas, replicas


def surge(deployment: Manifest) -> int:
    """Pods in addition to the maximum: none for a rollout that removes one first."""
    rolled = deployment["spec"]["strategy"]["rollingUpdate"]
    amount = rolled["maxSurge"]
    assert isinstance(amount, int)
    return 0 if rolled["maxUnavailable"] else amount


def gpus_of(deployment: Manifest) -> int:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    return sum(int(v) for container in containers for k, v in container["resources"]["limits"].items() if GPUS in k)


def test_servers_match_deployments_and_autoscalers(case: Case) -> None:
    expected = sorted(
        (namespace, name, gpus, *(replicas := scaled(case.world, namespace, name)), more, gpus * (replicas[1] + more))
        for deployment in case.world.of("Deployment")
        if (namespace := deployment["metadata"]["namespace"]) in case.world.teams and (gpus := gpus_of(deployment))
        for name, more in [(deployment["metadata"]["name"], surge(deployment))]
    )
    assert expected == sorted(
        (one.team, one.name, one.gpus, one.replicas.minimum, one.replicas.maximum, one.surge, one.peak)
        for one in case.now.serving
    )
    held = kueue(case.world)
    for server in case.now.serving:
        place = (case.world.teams[server.team], server.flavor)
        assert server.limit == next(line[1] for key, line in held.items() if key[:2] == place)


def test_access_is_what_namespaces_and_network_policies_grant(case: Case) -> None:
    spaces = {space["metadata"]["name"]: space["metadata"]["labels"] for space in case.world.of("Namespace")}
    for access in case.now.access:
        labels = spaces[access.team]
        assert (labels["owner"], labels["pod-security.kubernetes.io/enforce"]) == (access.owner, access.pod_security)
        cidrs = {
            to["ipBlock"]["cidr"]
            for policy in case.world.of("NetworkPolicy")
            if policy["metadata"]["namespace"] == access.team
            for rule in policy["spec"].get("egress", ())
            if any(port["port"] == 443 for port in rule.get("ports", ()))
            for to in rule["to"]
            if "ipBlock" in to
        }
        assert cidrs == set(access.egress)
        claims = {
            claim["metadata"]["name"]
            for claim in case.world.of("PersistentVolumeClaim")
            if claim["metadata"]["namespace"] == access.team and "volumeName" in claim["spec"]
        }
        assert claims == set(access.datasets)
    assert {name: labels["cost-center"] for name, labels in spaces.items() if name in case.world.teams} == {
        team.name: team.cost_center for team in case.now.teams
    }


# Random stacks, reproducible by seed.
