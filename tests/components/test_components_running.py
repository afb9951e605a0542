"""Running work stays: pods of jobs, and of servers with one replica, are not evicted by node autoscalers."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from builders import job, stack, team
from components_builders import tenancy
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.base.json import Json, at, map_at, maps_at
from gpu_tenancy.engine.objects import KubernetesObject, kubernetes_objects
from gpu_tenancy.model.kinds import kind_of
from gpu_tenancy.model.spec.roles import Framework

STAYS = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
STACKS = sorted(file.name.split(".")[1] for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))
SERVES = "livenessProbe"
"""Only containers of servers have it."""


def templates(made: KubernetesObject) -> Iterator[Mapping[str, Json]]:
    """The pod templates of a workload; of a TrainJob, the patches of those of its runtime."""
    kind = kind_of(made.manifest)
    if kind is None:
        return
    own: list[Mapping[str, Json]] = [pods.template for pods in kind.pod_sets(made.manifest) if "spec" in pods.template]
    for patch in maps_at(made.manifest, "spec", "runtimePatches"):
        jobs = maps_at(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        own += [map_at(one, "template", "spec", "template") for one in jobs]
    yield from own


def stays(template: Mapping[str, Json]) -> bool:
    found = map_at(template, "metadata", "annotations")
    return STAYS.items() <= found.items()


@pytest.mark.parametrize("name", STACKS)
def test_pods_of_each_job_of_a_stack_stay_and_replicas_of_servers_may_move(name: str) -> None:
    wrong: list[str] = []
    objects = kubernetes_objects(stack_of_repository(name).rendered)
    teams = {made.namespace for made in objects if made.kind == "LocalQueue"}
    for made in objects:
        # Runtimes of a priority class are for TrainJobs of users, whose JobSet is completed.
        of_class = made.kind == "TrainingRuntime" and not made.name.startswith("job-")
        for template in templates(made) if made.namespace in teams and not of_class else ():
            of_runtime = made.kind == "TrainingRuntime" and not at(template, "metadata", "annotations")
            moves = SERVES in str(template)
            if stays(template) == moves and not of_runtime:
                wrong.append(f"{made.kind}/{made.name}")
    assert wrong == []


def built(**fields: Any) -> list[bool]:
    """Whether each pod template of a workload of a stack stays."""
    gpus = {"h100": {"guaranteed": 8, "limit": 16}}
    program = tenancy(stack(teams={"a": team(gpus=gpus, gangs={"h100": {"limit": 8}}, **fields)}))
    found = {made.kind: [stays(one) for one in templates(made)] for made in program.objects}
    return found.get("TrainJob") or found.get("TrainingRuntime") or [one for kind in found.values() for one in kind]


@pytest.mark.parametrize("framework", get_args(Framework))
def test_a_job_of_each_framework_stays_unless_its_owner_lets_it_move(framework: str) -> None:
    plain = job(framework=framework, flavor="h100", command=["python", "/train.py"])
    for fields, expected in (({}, True), ({"movable": True}, False)):
        found = built(training={"j": plain | fields})
        assert found
        assert {*found} == {expected}


def test_a_gang_stays() -> None:
    assert {*built(training={"j": job(scheduler="volcano", flavor="h100", tasks={"master": 1, "worker": 1})})} == {True}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"replicas": 1}, [True]),
        ({"replicas": 1, "movable": True}, [False]),
        ({"replicas": 2}, [False]),
        ({"replicas": {"min": 1, "max": 2}}, [False]),
        ({"replicas": 2, "movable": False}, [True]),
    ],
)
def test_a_server_stays_if_no_other_replica_answers_meanwhile(fields: Any, expected: list[bool]) -> None:
    assert built(serving={"s": job(flavor="h100") | fields}) == expected
