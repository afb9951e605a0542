"""Servers: groups of nodes, bursts on spot nodes, rollouts, size by load, and hosts for clients."""

import re
from typing import Any

import pytest
import yaml
from builders import (
    EKS,
    GPU,
    PROVIDED,
    Data,
    base,
    environment_of,
    errors,
    patched,
    planned,
    pool,
    server,
    stack,
    stack_of,
    team,
    tree_of,
)
from hypothesis import given
from hypothesis import strategies as st
from repository import ROOT

from gpu_tenancy.base.quantity import format_rate, parse_rate
from gpu_tenancy.model.outlook import WayIn, outlook
from gpu_tenancy.model.plan.needs import installed_by
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.rollouts import Nodes, Rollout, Size, rollout
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import ServerPlan
from gpu_tenancy.review.figures_tables import ways_in

RACK = "example.com/rack"
CREATED: Data = {**EKS, **PROVIDED}


def grouped(topology: Data | None = None, **chat: Any) -> Data:
    """A server of two nodes, and nodes for four of its replicas."""
    teams = {"a": {"serving": {"chat": chat}}}
    return patched(base("groups"), {"pools": {"h100": {"topology": topology}}, "teams": teams})


def group_server(**fields: Any) -> ServerPlan:
    (found,) = planned(grouped(**fields)).teams[0].servers
    return found


def test_replicas_are_a_leader_and_equal_workers() -> None:
    made = group_server(nodes=3, replicas=2)
    assert made.worker is not None
    assert (made.spec.nodes, made.api[1], made.replicas) == (3, "LeaderWorkerSet", 2)
    assert made.pod.amounts == made.worker.amounts
    assert made.pod.gpus == 8
    assert group_server(nodes=1).worker is None
    assert group_server(nodes=1).api[1] == "Deployment"


def test_workers_inherit_from_the_leader() -> None:
    env = {"A": "1", "B": "1"}
    plain = group_server(command=["serve"], args=["--all"], env=env).worker
    own = {"command": ["serve", "--headless"], "env": {"B": "2"}}
    other = group_server(command=["serve"], args=["--all"], env=env, worker=own).worker
    assert plain is not None
    assert other is not None
    assert (plain.command, plain.args, plain.env) == (("serve",), ("--all",), env)
    assert (other.command, other.args, other.env) == (("serve", "--headless"), (), {"A": "1", "B": "2"})


def test_reports_and_quotas_count_the_gpus_of_whole_groups() -> None:
    (found,) = outlook(stack_of(grouped(surge=1))).serving
    assert (found.gpus, found.peak, found.limit) == (16, 64, 64)
    assert planned(grouped()).teams[0].namespace.quotas[0].hard[f"requests.{GPU}"] == 64


def test_pods_of_a_group_use_fabric_and_shared_memory() -> None:
    made = grouped(gpus=8, replicas=1)
    made["cluster"], made["pools"]["h100"]["fabric"] = CREATED, True
    (found,) = planned(made).teams[0].servers
    assert found.worker is not None
    assert found.pod.fabric == found.worker.fabric
    assert found.worker.fabric is not None
    made["teams"]["a"]["serving"]["chat"]["nodes"] = 1
    assert planned(made).teams[0].servers[0].pod.fabric is None
    assert group_server(gpus=1).pod.shared_memory
    assert not group_server(gpus=1, nodes=1).pod.shared_memory


def test_topology_applies_to_each_group() -> None:
    made = group_server(topology={"rack": RACK}, together="rack")
    assert made.worker is not None
    assert made.pod.topology == made.worker.topology
    assert made.pod.topology["kueue.x-k8s.io/podset-required-topology"] == RACK
    assert "kueue.x-k8s.io/podset-group-name" in made.pod.topology
    free = group_server(topology={"rack": RACK})
    assert dict(free.pod.topology) == {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}


def test_a_stack_with_a_group_needs_leader_worker_set() -> None:
    created = {**grouped(), "cluster": CREATED}
    assert installed_by(environment_of(created), "lws") == "here"
    alone = {**grouped(), "cluster": CREATED}
    alone["teams"]["a"]["serving"]["chat"].pop("nodes")
    assert installed_by(environment_of(alone), "lws") == "off"
    (problem,) = errors({**created, "operators": {"lws": "off"}})
    assert "the stack needs the operator: server chat of team a is a LeaderWorkerSet" in problem


# Bursts on spot nodes.

SERVING_PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
PLACE = "teams.ml-serving.serving.model-server.burst: "


def of_page(cluster: Data | None = None, **fields: Any) -> Data:
    (block,) = (one for one in re.findall(r"```yaml\n(.+?)```", SERVING_PAGE, re.DOTALL) if "burst:" in one)
    sections = {key.removeprefix("gpu-tenancy:"): value for key, value in yaml.safe_load(block).items()}
    sections["cluster"] = {**PROVIDED, "cloud": "existing", **(cluster or sections["cluster"])}
    sections["teams"]["ml-serving"]["serving"]["model-server"].update(fields)
    return sections


def warnings(sections: Data) -> tuple[str, ...]:
    return outlook(stack_of(sections)).warnings


def test_the_page_of_servers_shows_what_is_lost_with_spot_nodes() -> None:
    (shown,) = re.findall(r"```text\n(teams\.[^`]+takes a node[^`]+)\n```", SERVING_PAGE)
    assert warnings(of_page()) == tuple(shown.splitlines())


@pytest.mark.parametrize(
    ("provider", "drain", "said"),
    [
        ("aws", "105s", None),
        ("gcp", "10s", "15 s - 15 s until no proxy sends requests = 0 s, but drain is 10s; expect that"),
        ("azure", "30s", "= 15 s, but drain is 30s; set drain to at most 15s, or expect that"),
        ("", "2m", None),
        ("aws", None, None),
    ],
)
def test_a_drain_beyond_the_notice_of_the_cloud_is_named(provider: str, drain: str | None, said: str | None) -> None:
    cluster = {"provider": provider} if provider else {"cloud": "existing"}
    late = [one for one in warnings(of_page(cluster, drain=drain)) if "takes a node" in one]
    assert len(late) == (said is not None)
    assert all(one.startswith(PLACE) and str(said) in one for one in late)


@pytest.mark.parametrize(
    ("load_", "said"),
    [
        (None, "40 of 50 replicas remain; set load of the server to see what they carry"),
        ({"rate": "8000/s", "perReplica": "220/s"}, "which carry 8,000/s of the load of 8,000/s"),
    ],
)
def test_what_the_base_carries_is_said_with_and_without_a_load(load_: Data | None, said: str) -> None:
    (remains,) = warnings(of_page(load=load_, drain=None))
    assert remains.startswith(f"{PLACE}without flavor l4-spot, ")
    assert remains.endswith(said)


def test_the_burst_is_a_row_of_the_summary_with_its_own_limit() -> None:
    base, burst = outlook(stack_of(of_page())).serving
    assert (burst.name, burst.flavor, burst.replicas.maximum, burst.limit) == ("model-server-burst", "l4-spot", 10, 10)
    assert (base.flavor, base.replicas.maximum, base.surge) == ("l4", 40, 1)


def test_alerts_on_engine_metrics_are_of_the_service() -> None:
    measured = {"metrics": {"latency": "seconds", "waiting": "queue", "running": "running"}}
    sections = of_page(serviceLevel={"latency": "2s"}, **measured)
    observed = planned({**sections, "operators": {"prometheus": "installed"}}).observability
    assert observed
    labels = [rule.get("labels", {}) for group in observed.rules for rule in group["rules"]]
    assert {one["server"] for one in labels if "server" in one} == {"model-server"}


# Rollouts.


def _tree(guaranteed: int, limit: int, **servers: Data) -> Tree:
    teams = {"a": team(gpus={"h100": {"guaranteed": guaranteed, "limit": limit}}, serving=servers)}
    return tree_of(stack(pools={"h100": pool(nodes=16)}, teams=teams))


def _rollout(tree: Tree, name: str = "s") -> Rollout:
    spec = tree.stack.teams["a"].serving[name]
    size = pod_size(tree, "a", spec)
    assert size
    return rollout(tree, spec, size)


@given(
    least=st.integers(1, 40),
    more=st.integers(0, 24),
    spare=st.integers(0, 2),
    borrowed=st.integers(0, 24),
    gpus=st.integers(1, 2),
)
def test_a_rollout_keeps_the_minimum_or_warns(least: int, more: int, spare: int, borrowed: int, gpus: int) -> None:
    most = least + more
    limit = (most + spare) * gpus
    guaranteed = max(0, limit - borrowed * gpus)
    replicas = {"min": least, "max": most}
    tree = _tree(guaranteed, limit, s=server(replicas=replicas if more else least, gpus=gpus, cpu=1, memory="1Gi"))
    made = _rollout(tree)
    if made.warning:
        assert outlook(tree.stack).warnings == (f"teams.a.serving.s: a rollout {made.warning}",)
        return
    for now in range(least, most + 1):
        share = made.unavailable if isinstance(made.unavailable, int) else None
        taken = now * int(str(made.unavailable).removesuffix("%")) // 100 if share is None else share
        assert now - taken >= least
        assert taken >= 1 or (now + made.surge) * gpus <= guaranteed, f"the surge pod of {now} replicas waits"


NEED = "nvidia.com/gpu of flavor h100 are guaranteed to it, 4 + 1 replicas need"
RAISE, LOWER = "raise teams.a.gpus.h100.guaranteed by", "or lower replicas"
CPUS = f"160 {NEED} 200; {RAISE} 40, {LOWER}".replace("nvidia.com/gpu", "cpu").replace("gpus.h100", "quota.h100.cpu")


@pytest.mark.parametrize(
    ("quota", "spec", "expected"),
    [
        ((9, 9), {"replicas": 8}, Rollout(1, 0)),
        ((8, 8), {"replicas": {"min": 2, "max": 8}}, Rollout(1, "13%")),
        ((8, 16), {"replicas": {"min": 2, "max": 16}}, Rollout(1, "13%")),
        ((8, 8), {"replicas": {"min": 2, "max": 8}, "surge": 0}, Rollout(0, 1, "has 1 of 2 replicas; remove surge: 0")),
        ((9, 9), {"replicas": 8, "surge": 1}, Rollout(1, 0)),
        ((8, 8), {"replicas": 4, "gpus": 2}, Rollout(0, 1, f"has 3 of 4 replicas: 8 {NEED} 10; {RAISE} 2, {LOWER}")),
        ((8, 8), {"replicas": 4, "cpu": 40}, Rollout(0, 1, f"has 3 of 4 replicas: {CPUS}")),
        ((4, 16), {"replicas": 4}, Rollout(1, 0, f"waits until quota can be borrowed: 4 {NEED} 5; {RAISE} 1, {LOWER}")),
    ],
)
def test_the_bounds_of_a_rollout_follow_from_the_quota(quota: tuple[int, int], spec: Data, expected: Rollout) -> None:
    assert _rollout(_tree(*quota, s=server(**spec))) == expected


def test_servers_of_a_team_share_its_guarantee() -> None:
    tree = _tree(12, 12, s=server(replicas={"min": 2, "max": 8}), other=server(replicas={"min": 1, "max": 4}))
    assert _rollout(tree) == Rollout(1, "13%")
    assert _rollout(tree, "other") == Rollout(1, "25%")


# The size of a server from its load.


def serving(**fields: Any) -> Data:
    """A server with one L4 a replica and the load of the reference, on 16 nodes with four, whose team has fifty."""
    return patched(base("load"), {"teams": {"a": {"serving": {"m": fields}}}})


def test_the_load_of_the_reference_needs_its_fifty_replicas() -> None:
    size = Size(parse_rate("10000/s"), parse_rate("220/s"), nodes=Nodes(each=4, always=16, most=16))
    assert (size.needed, size.replicas, size.peak) == (46, 50, 50)
    assert errors(serving()) == []
    (problem,) = errors(serving(replicas={"min": 3, "max": 49}))
    assert "replicas.max: 49 cannot carry the load: 10,000/s ÷ 220/s = 46 replicas" in problem


def test_a_rate_is_exact() -> None:
    """In floating point, 1.1 / 0.1 is more than 11."""
    assert Size(parse_rate("1.1/s"), parse_rate("0.1/s"), headroom=False).replicas == 11
    rates = [format_rate(parse_rate(text)) for text in ("1.1/s", "10000/s", "0.001/s")]
    assert rates == ["1.1/s", "10,000/s", "0.001/s"]


@given(
    needed=st.integers(1, 500),
    each=st.integers(1, 16),
    always=st.integers(0, 40),
    more=st.integers(0, 40),
    surge=st.integers(0, 3),
)
def test_the_size_of_a_server_is_the_least_that_carries(
    needed: int, each: int, always: int, more: int, surge: int
) -> None:
    nodes = Nodes(each, always, always + more)
    size = Size(needed * 1000, 1000, surge, nodes)

    def carried(replicas: int) -> bool:
        lost = nodes.lost_with_one(replicas)
        return replicas - lost >= needed and (surge > 0 or replicas - 1 >= needed)

    assert carried(size.replicas)
    assert not carried(size.replicas - 1)
    assert size.peak == size.replicas + surge


def shown_error(words: str) -> str:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (shown,) = re.findall(rf"```text\n(teams\.[^`]+{words}[^`]+?)\n```", page)
    return " ".join(shown.split())


def test_the_page_of_servers_shows_the_error_of_a_stack() -> None:
    (problem,) = errors(serving(load={"rate": "12000/s"}))
    renamed = problem.replace("teams.a.", "teams.ml-serving.").replace(".m.", ".model-server.")
    assert shown_error("cannot carry") == renamed


# Hosts for clients outside of the cluster.


def exposed(**chat: object) -> Data:
    return patched(base("exposed"), {"teams": {"a": {"serving": {"chat": {"expose": chat}}}}})


def test_the_page_of_servers_shows_the_error_of_a_public_host() -> None:
    (problem,) = errors(exposed(reach="public", apiKey=None))
    assert shown_error("is public") == problem.replace("teams.a.", "teams.ml-production.")


def test_reviews_list_hosts_with_reach_and_servers() -> None:
    assert outlook(stack_of(exposed())).ways_in == (
        WayIn("a", "chat.ml.example.com", "internal", "infra/edge", ("/v1",), "chat-key", (("chat", 95), ("next", 5))),
    )


def test_reviews_list_hosts_of_notebooks() -> None:
    seen = outlook(stack_of(base("hosted")))
    assert seen.ways_in[1:] == (
        WayIn("a", "ann.lab.example.com", "internal", "infra/edge", ("/",), "", (("ann", 100),), notebook=True),
        WayIn("a", "ben.lab.example.com", "internal", "infra/edge", ("/",), "", (("ben", 100),), notebook=True),
    )
    cells = [[cell.text for cell in line.cells][-2:] for line in ways_in(seen).rows]
    assert cells == [
        ["no key", "chat 100 %"],
        ["token of the notebook", "notebook ann"],
        ["token of the notebook", "notebook ben"],
    ]


def test_secrets_of_keys_are_among_those_that_a_server_uses() -> None:
    servers = planned(exposed()).teams[0].servers
    used = {one.secret for server in servers for one in server.pod.references.variables.values()}
    assert used == {"chat-key"}
