"""One team cannot fill the cluster's store, nor slow down the API server for others."""

from collections.abc import Iterator
from typing import Any

import pytest
from acceptance_builders import Waves, declared, flat, in_waves, sections_of
from acceptance_guards import (
    EXPERIMENTS,
    PRODUCTION,
    RESEARCH,
    TEAMS,
    Door,
    Person,
    an_object,
    cron_job,
    job,
    job_set,
    pod_of,
)
from removing import remove

from gpu_tenancy.base.json import at, map_at, text_at
from gpu_tenancy.kube.apply import apply
from gpu_tenancy.kube.client import Cluster, Manifest

FLOWS = "flowcontrol.apiserver.k8s.io/v1"
NAME = "gpu-tenancy-teams"


@pytest.fixture(scope="module")
def stack() -> Waves:
    """The stack `local`, with a team that may have few objects. Kueue does not run."""
    sections = sections_of("local")
    sections["teams"][EXPERIMENTS]["objects"] = {"jobs": 2, "pods": 1, "cronjobs": 1, "others": 20}
    return in_waves(declared(sections))


@pytest.fixture(scope="module", autouse=True)
def deployed(cluster: Cluster, stack: Waves, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waves]:
    apply(cluster, stack, tmp_path_factory.mktemp("floods") / "inventory.json")
    yield stack
    remove(cluster, flat(stack))


@pytest.fixture(scope="module")
def people(door: Door) -> Iterator[tuple[Person, Person]]:
    with (
        door.let_in("ci", "edit", EXPERIMENTS, PRODUCTION, home="test-flood-home") as foreign,
        door.let_in("flooder", "edit", EXPERIMENTS, home=EXPERIMENTS) as own,
    ):
        yield own, foreign


def test_counts_of_teams_have_room_for_the_stack(cluster: Cluster) -> None:
    used = {
        team: cluster.wait_for(lambda team=team: _used(cluster, team), what=f"the counts of {team}") for team in TEAMS
    }
    assert all(counts["count/workloads.kueue.x-k8s.io"] == 0 for counts in used.values()), "Kueue does not run here"
    assert used["ml-serving"]["count/deployments.apps"] == 1
    assert used[RESEARCH]["count/jobsets.jobset.x-k8s.io"] >= 1


def _used(cluster: Cluster, team: str) -> dict[str, int] | None:
    """The number of objects of each counted kind in a team; None until all are counted."""
    quota = cluster.get("v1", "ResourceQuota", "budget", team) or {}
    hard, used = (map_at(quota, "status", key) for key in ("hard", "used"))
    if not hard or hard.keys() != used.keys():
        return None
    return {name: int(str(used[name])) for name in hard if name.startswith("count/")}


def test_objects_beyond_the_counts_of_their_team_are_refused(cluster: Cluster) -> None:
    made: list[Any] = []
    try:
        for flood, allowed in ((job, 3), (job_set, 3), (cron_job, 1), (lease, 20)):
            for number in range(allowed + 1):
                one = flood(EXPERIMENTS, EXPERIMENTS, *([pod_of()] if flood in {job, job_set} else []))
                one["metadata"]["name"] = f"flood-{number}"
                if flood is not lease:
                    one["spec"]["suspend"] = True
                if number == allowed:
                    cluster.wait_for(lambda one=one: _is_full(cluster, one), what="the count of what was created")
                    with pytest.raises(Exception, match=f"exceeded quota: budget.*count/{one['kind'].lower()}s"):
                        cluster.create(one)
                else:
                    made.append(one)
                    cluster.create(one)
        cluster.create(job(RESEARCH, RESEARCH), dry_run=True)
    finally:
        remove(cluster, made)


def lease(namespace: str, _: str) -> Any:
    return an_object("coordination.k8s.io/v1", "Lease", "flood", namespace)


def _is_full(cluster: Cluster, one: Manifest) -> bool:
    """Whether the quota of a kind is used up. The controller's count can be an earlier one."""
    quota = cluster.get("v1", "ResourceQuota", "budget", EXPERIMENTS) or {}
    name = f"count/{text_at(one, 'kind').lower()}s.{text_at(one, 'apiVersion').partition('/')[0]}"
    return text_at(quota, "status", "used", name) == text_at(quota, "status", "hard", name) != ""


def test_requests_of_teams_have_their_own_priority_level(cluster: Cluster, people: tuple[Person, Person]) -> None:
    own, foreign = people
    uids = {
        name: at(cluster.get(FLOWS, "FlowSchema", name) or {}, "metadata", "uid") for name in (NAME, "service-accounts")
    }

    def flow(person: Person, path: str) -> str:
        """The uid of the request's FlowSchema."""
        return person.send("GET", path).headers["X-Kubernetes-PF-FlowSchema-UID"]

    for path in (f"/api/v1/namespaces/{EXPERIMENTS}/pods", f"/api/v1/namespaces/{PRODUCTION}/pods", "/api/v1/nodes"):
        cluster.wait_for(lambda path=path: flow(own, path) == uids[NAME], what="the FlowSchema to be in force")
        assert flow(foreign, path) == uids["service-accounts"]
