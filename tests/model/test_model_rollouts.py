"""Rollouts of servers: within the guarantee, and with no fewer replicas than the minimum."""

import pytest
from builders import Data, pool, server, stack, team
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.plan.pods import pod_size
from gpu_tenancy.model.plan.rollouts import Rollout, rollout
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source


def _tree(guaranteed: int, limit: int, **servers: Data) -> Tree:
    teams = {"a": team(gpus={"h100": {"guaranteed": guaranteed, "limit": limit}}, serving=servers)}
    return Tree(load(Source(stack(pools={"h100": pool(nodes=16)}, teams=teams))))


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
def test_a_rollout_ends_at_any_number_of_replicas_and_keeps_the_minimum_or_says_so(
    least: int, more: int, spare: int, borrowed: int, gpus: int
) -> None:
    most = least + more
    limit = (most + spare) * gpus
    guaranteed = max(0, limit - borrowed * gpus)
    replicas = {"min": least, "max": most}
    tree = _tree(guaranteed, limit, s=server(replicas=replicas if more else least, gpus=gpus, cpu=1, memory="1Gi"))
    made = _rollout(tree)
    if made.warning:
        assert outlook(tree.stack).server_warnings == (f"teams.a.serving.s: a rollout {made.warning}",)
        return
    for now in range(least, most + 1):
        share = made.unavailable if isinstance(made.unavailable, int) else None
        taken = now * int(str(made.unavailable).removesuffix("%")) // 100 if share is None else share
        assert now - taken >= least
        assert taken >= 1 or (now + made.surge) * gpus <= guaranteed, f"the surge pod of {now} replicas waits"


@pytest.mark.parametrize(
    ("quota", "spec", "expected"),
    [
        ((9, 9), {"replicas": 8}, Rollout(1, 0)),
        ((8, 8), {"replicas": {"min": 2, "max": 8}}, Rollout(1, "13%")),
        ((8, 16), {"replicas": {"min": 2, "max": 16}}, Rollout(1, "13%")),
        ((8, 8), {"replicas": {"min": 2, "max": 8}, "surge": 0}, Rollout(0, 1, "has 1 of 2 replicas; remove surge: 0")),
        ((9, 9), {"replicas": 8, "surge": 1}, Rollout(1, 0)),
        (
            (8, 8),
            {"replicas": 4, "gpus": 2},
            Rollout(
                0,
                1,
                "has 3 of 4 replicas: 8 nvidia.com/gpu of flavor h100 are guaranteed to it, 4 + 1 replicas need 10;"
                " raise teams.a.gpus.h100.guaranteed by 2, or lower replicas",
            ),
        ),
        (
            (4, 16),
            {"replicas": 4},
            Rollout(
                1,
                0,
                "waits until quota can be borrowed: 4 nvidia.com/gpu of flavor h100 are guaranteed to it, 4 + 1"
                " replicas need 5; raise teams.a.gpus.h100.guaranteed by 1, or lower replicas",
            ),
        ),
    ],
)
def test_the_bounds_of_a_rollout_follow_from_the_quota(quota: tuple[int, int], spec: Data, expected: Rollout) -> None:
    assert _rollout(_tree(*quota, s=server(**spec))) == expected


def test_servers_of_a_team_share_its_guarantee() -> None:
    tree = _tree(12, 12, s=server(replicas={"min": 2, "max": 8}), other=server(replicas={"min": 1, "max": 4}))
    assert _rollout(tree) == Rollout(1, "13%")
    assert _rollout(tree, "other") == Rollout(1, "25%")
