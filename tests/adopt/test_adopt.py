"""`tenancy cluster adopt`: a stack from the objects of a cluster, and how it differs from them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from foreign_clusters import cluster_of, objects
from object_server import serving
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.adopt.adopting import Adopted, adopt
from gpu_tenancy.adopt.show import data, lines, written
from gpu_tenancy.adopt.tenancy import OPERATED, Seen
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.reading import Kind, Missing, State, current
from gpu_tenancy.cluster.supply import Facts
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import read_file

Data = dict[str, Any]
HIDDEN = "NetworkPolicy"  # an unprivileged user does not know whether the cluster has this kind


def foreign() -> list[Data]:
    """A foreign cluster: queues and quotas have other names than in a stack, and machines no type."""
    return [each for each in objects() if each["kind"] != "ConfigMap"]


def adopted(
    objects: Iterable[Data], missing: Mapping[Kind, Missing] | None = None, groups: Iterable[str] = ()
) -> Adopted:
    by_kind: dict[Any, list[Any]] = defaultdict(list)
    for each in objects:
        by_kind[each["kind"]].append(current(each, each["kind"]))
    state = State({kind: tuple(found) for kind, found in by_kind.items()}, missing or {})
    seen = Seen(Facts(state), groups=frozenset(groups))
    return adopt(seen, "adopted", lambda one: None if missing and one.kind == HIDDEN else False, ROOT)


def test_what_the_api_server_adds_is_no_difference() -> None:
    objects = cluster_of("example-three-teams")
    added: dict[str, Data] = {
        "ClusterQueue": {
            "stopPolicy": "None",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        },
        "LocalQueue": {"stopPolicy": "None"},
        "Namespace": {"finalizers": ["kubernetes"]},
    }
    for each in objects:
        each["spec"] = {**each.get("spec", {}), **added.get(each["kind"], {})}
    assert {(each.kind, each.field) for each in adopted(objects).differences} == MADE


MADE = {("Namespace", "metadata.labels.app.kubernetes.io/managed-by")}

# Objects of people that adoption names and leaves alone.
LEFT = {
    "example-three-teams": [],
    "example-tree": [],
    "example-shared-queue": ["Job vision/nightly"],
    "example-elastic": [f"RoleBinding namespace{number}/gpu-tenancy-researchers" for number in range(1, 5)],
}


@pytest.mark.parametrize("name", LEFT)
def test_a_stack_is_read_back_from_its_objects(name: str) -> None:
    made = adopted(cluster_of(name))
    assert made.problems == ()
    assert {(each.kind, each.field) for each in made.differences} == MADE
    assert [text.partition(":")[0] for text in made.left] == LEFT[name]
    assert not {"ClusterQueue", "Cohort", "ResourceFlavor", "LocalQueue", "ResourceQuota", "LimitRange"} & {*made.new}


def test_derived_values_are_not_in_the_stack() -> None:
    teams = adopted(cluster_of("example-tree")).sections["teams"]
    assert teams["ads"] == {
        "owner": "ads", "costCenter": "p-001", "cohort": "products", "gpus": {"h100": {"guaranteed": 8, "limit": 24}},
    }  # fmt: skip
    assert teams["interns"]["quota"] == {
        "cpu": {"cpu": {"guaranteed": "16", "limit": "64"}, "memory": {"guaranteed": "64Gi", "limit": "256Gi"}}
    }


def test_local_stack_differs_only_in_gangs_and_topology() -> None:
    made = adopted(cluster_of("local"), groups=OPERATED)
    assert made.sections["operators"] == dict.fromkeys(("kuberay", "lws", "trainer", "volcano"), "installed")
    others = {each for each in made.differences if (each.kind, each.field) not in MADE}
    assert {(each.kind, each.name, each.field.split(".")[-1]) for each in others} == {
        ("Cohort", "org", "nominalQuota"),
        ("ResourceFlavor", "l4", "topologyName"),
        ("ResourceQuota", "ml-research/budget", "com/gpu"),
    }
    assert "Queue ml-research-l4 of Volcano: a stack has gangs by team and flavor" in made.left
    assert {text.split()[0] for text in made.left} == {
        "Deployment", "Job", "NetworkPolicy", "PersistentVolumeClaim", "Queue", "RoleBinding", "Topology",
    }  # fmt: skip
    assert made.sections["teams"]["ml-production"]["objects"] == {"pods": 200, "services": 50}


def test_objects_of_others_stay_beside_those_of_the_stack() -> None:
    made = adopted(foreign())
    assert made.sections["cluster"]["adopt"] == [
        "Namespace/blue", "Namespace/red", "PriorityClass.scheduling.k8s.io/usual",
        "ResourceFlavor.kueue.x-k8s.io/big",
    ]  # fmt: skip
    assert made.sections["pools"]["big"] == {
        "cpu": "96", "memory": "1000Gi", "gpu": "NVIDIA-A100-SXM4-80GB", "gpusPerNode": 8, "nodes": 2,
        "labels": {"gpus": "a100"},
    }  # fmt: skip
    red = made.sections["teams"]["red"]
    assert red["gpus"] == {"big": {"guaranteed": 8, "limit": 16}}
    assert (red["preemption"], red["containers"]) == ({"withinClusterQueue": "Never"}, {"max": {"cpu": "8"}})
    shown = list(lines(made))
    left = "ClusterQueue red-queue, blue-queue: its quota is promised beside that of the stack until you delete it"
    assert f"not in the stack: {left}" in shown
    assert "differs: Namespace blue, red: metadata.labels.cost-center: not set → unknown" in shown
    assert "differs: Namespace red: metadata.labels.owner: not set → red" in shown


# Clusters of others with a queue, and what their stacks do not have.
CLUSTERS = ("consistent", "tutorial", "kueue-cohort-v1beta1", "kueue-named", "slack-queue")


@pytest.mark.parametrize("name", CLUSTERS)
def test_adoption_names_each_object_of_a_cluster(name: str) -> None:
    cluster = objects(name)
    made = adopted(cluster)
    adopts, shown = set(made.sections["cluster"].get("adopt", ())), "\n".join(lines(made))
    for each in cluster:
        one = Reference.of(each)
        named = one.name in shown.replace(",", " ").replace(":", " ").replace("/", " ").split()
        assert one.adoptable in adopts or named or each["kind"] in {"ConfigMap", "Node"}, each


def test_pool_without_a_gpu_model_is_assumed() -> None:
    cluster = foreign()
    for each in cluster:
        if each["kind"] == "Node":
            del each["metadata"]["labels"]["nvidia.com/gpu.product"]
    made = adopted(cluster)
    assert made.assumed == ["pools.big.gpu: no node shows the GPU model; set it"]
    assert f"assumed: {made.assumed[0]}" in lines(made)


def test_refuses_a_cluster_without_kueue() -> None:
    with pytest.raises(ConsoleError, match="the cluster has no Kueue"):
        adopted(foreign(), {"LocalQueue": Missing("LocalQueue", "queues", "not served", "")})


def test_tutorial_is_adopted_into_a_valid_stack() -> None:
    made = adopted(objects("tutorial"))
    assert made.problems == ()
    assert made.sections["cohorts"] == {"root.a": {}}
    assert made.sections["pools"]["h100-80gb"] == {
        "cpu": "64", "memory": "256Gi", "gpu": "NVIDIA-H100-80GB-HBM3", "gpusPerNode": 8, "nodes": 2,
    }  # fmt: skip
    assert made.sections["teams"]["test-production"]["gpus"] == {
        "a100-80gb": {"guaranteed": 32, "limit": 48},
        "h100-80gb": {"guaranteed": 16, "limit": 16},
    }
    research = made.sections["teams"]["test-research"]
    assert "compute" not in research
    assert research["objects"]["pods"] == 50
    below = "Team test-research: compute.requests.cpu: 64 is less than the 512 cpu that the team's queues can admit"
    assert any(text.startswith(below) for text in made.left)
    h100 = "no node has the labels of its flavor; 2 nodes for the quota of queues; correct it"
    assert made.assumed == [f"pools.h100-80gb: {h100}"]


def test_writes_an_undeployable_stack_with_its_problems() -> None:
    objects = foreign()
    nodes = [each for each in objects if each["kind"] == "Node"]
    made = adopted(each for each in objects if each is not nodes[0])
    assert "exceed" in " ".join(lines(made))
    assert data(made)["problems"]
    assert "guaranteed: 8" in written(made)


def test_reports_an_incomplete_stack_without_list_rights() -> None:
    hidden = Missing("LocalQueue", "queues", "you may not", "an auditor", partly=True)
    made = adopted(foreign(), {"LocalQueue": hidden})
    first, *others = lines(made)
    assert first.startswith("✗ incomplete: you may not read LocalQueues of the whole cluster. Teams are missing")
    assert data(made)["incomplete"] == ["LocalQueues"]
    assert f"not in the stack: {HIDDEN} 6: you may not list them; adopted if they exist" in others
    assert f"{HIDDEN}.networking.k8s.io/red/default-deny" in made.sections["cluster"]["adopt"]


def test_the_file_is_a_stack_whose_long_list_is_at_its_end(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.adopted.yaml"
    text = written(adopted(cluster_of("local")))
    file.write_text(text, encoding="utf-8")
    head, _, tail = text.partition("    adopt:\n")
    assert "gpu-tenancy:teams:" in head
    assert all(line.startswith("    - ") for line in tail.splitlines())
    assert set(load(read_file(file)).teams) == {"ml-experiments", "ml-production", "ml-research", "ml-serving"}


@pytest.mark.process
def test_the_command_of_the_page_writes_a_stack(tmp_path: Path) -> None:
    served: dict[tuple[str, str], list[Data] | None] = defaultdict(list)
    for each in foreign():
        found = served[each["apiVersion"], each["kind"]]
        assert found is not None
        found.append(each)
    served["storage.k8s.io/v1", "StorageClass"] = None
    file = tmp_path / "Pulumi.adopted.yaml"
    with serving(tmp_path, served) as kubeconfig:
        command = ["cluster", "adopt", "--project", str(ROOT), "--out", str(file), "--kubeconfig", str(kubeconfig)]
        result = CliRunner().invoke(app, command)
        again = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "StorageClasses not readable" in result.stdout
    assert set(load(read_file(file)).teams) == {"blue", "red"}
    assert again.exit_code == 1
    assert "exists; use another name" in again.output.replace("\n", " ")


def test_what_exists_beside_the_objects_that_are_read_is_adopted() -> None:
    objects = cluster_of("example-three-teams")
    known = {Reference.of(each) for each in objects}
    by_kind: dict[Any, list[Any]] = defaultdict(list)
    for each in objects:
        by_kind[each["kind"]].append(each)
    state = State({kind: tuple(found) for kind, found in by_kind.items()})
    made = adopt(Seen(Facts(state)), "adopted", known.__contains__, ROOT)
    assert not made.new
    assert "NetworkPolicy.networking.k8s.io/team-a/default-deny" in made.sections["cluster"]["adopt"]
