"""A stack can be destroyed and created again under the same names, and keys that encrypt something stay."""

import ast
from collections.abc import Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, Final

import pulumi
import pytest
import test_clouds_network
from builders import Data
from cloud_names import KEYS, LOG_GROUP, Clouds, TakenError, rows
from cloud_stacks import SUBNETS, aks_creation, aks_stack, eks_creation, eks_section, eks_stack, gke_creation, gke_stack
from components_builders import cluster
from dependency_graph import Graph

import components.clouds
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.recording import Registration

OWN_KEY: Final = {
    "aws": "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-4e5f-6a7b-8c9d-0e1f2a3b4c5d",
    "gcp": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
}
SHARED: Final = {
    "efs": {"size": "2Ti", "mode": "shared"},
    "fast": {"size": "4800Gi", "mode": "shared", "class": "fsx-lustre"},
}


def eks(zones: Sequence[str] = (), **cluster: Any) -> Data:
    create = {"zones": zones} if zones else {}
    sections = eks_stack(eks_creation(eks_section(**cluster), **create))
    sections["teams"]["a"] |= {"storage": SHARED, "secrets": {"wandb": {"from": "aws://eu-central-1/a/wandb"}}}
    return with_bucket(sections, "s3://ml-out")


def with_bucket(sections: Data, bucket: str) -> Data:
    return {**sections, "datasets": {"out": {"bucket": bucket, "create": True}}}


STACKS: Final[Mapping[str, Data]] = {
    "node groups": eks(autoscaler="cluster-autoscaler"),
    "created network": eks(subnets={}, zones=list(SUBNETS)),
    "karpenter": eks(autoscaler="karpenter"),
    "gke": with_bucket(gke_stack(create=gke_creation()), "gs://ml-out/v1"),
    "gke network": with_bucket(test_clouds_network.gke(), "gs://ml-out/v1"),
    "aks": with_bucket(aks_stack(aks_creation()), "az://mlout/out"),
    "aks network": with_bucket(test_clouds_network.aks(), "az://mlout/out"),
}


def sent(sections: Data, clouds: Clouds) -> list[Registration]:
    """What a stack registers in its cloud, in an order in which it is created."""
    graph = Graph(cluster(sections, clouds.answers()).rendered)
    ordered = [graph.known[urn] for urn in graph.order()]
    return [one for one in ordered if one.type.startswith(("aws:", "gcp:", "azure-native:")) and not one.external_id]


def declared() -> set[str]:
    """Types of all resources of clouds that a module of components/clouds names."""
    found: set[str] = set()
    for module in walk_packages(components.clouds.__path__, "components.clouds."):
        names = vars(import_module(module.name))
        source = Path(names["__file__"]).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            found |= _types(names, node)
    return found


def _types(names: Mapping[str, Any], node: ast.AST) -> set[str]:
    """The type of a resource that an expression such as `aws.iam.Role` is."""
    value: Any = None
    match node:
        case ast.Name(id=name):
            value = names.get(name)
        case ast.Attribute():
            steps = ast.unparse(node).split(".")
            value = names.get(steps[0]) if all(step.isidentifier() for step in steps) else None
            for step in steps[1:]:
                value = getattr(value, step, None)
        case _:
            return set()
    token = _token(value) if isinstance(value, type) and issubclass(value, pulumi.CustomResource) else ""
    return {token} if token.startswith(("aws:", "gcp:", "azure-native:")) else set()


def _token(resource: type[pulumi.CustomResource]) -> str:
    return str(getattr(resource, "pulumi_type", ""))


@pytest.mark.slow
def test_of_each_resource_that_a_stack_can_have_it_is_known_whether_its_name_is_free_again() -> None:
    assert rows().keys() == declared()
    assert all(row.source for row in rows().values() if row.after != "free")
    played = {one.type for sections in STACKS.values() for one in sent(sections, Clouds())}
    assert {type_ for type_, row in rows().items() if row.after != "free"} <= played


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_is_created_destroyed_and_created_again_under_the_same_names(name: str) -> None:
    sections, clouds = STACKS[name], Clouds()
    first = sent(sections, clouds)
    clouds.destroy(reversed(first), clouds.create(first))
    assert clouds.scheduled == []
    again = deepcopy(sections)
    with pytest.raises(TakenError, match=r"ml-?out"):  # a bucket with its data is not the stack's
        deepcopy(clouds).create(sent(again, clouds))
    del again["datasets"]["out"]["create"]
    clouds.create(sent(again, clouds))


@pytest.mark.parametrize(("name", "cloud"), [("node groups", "aws"), ("gke", "gcp")])
def test_a_key_that_encrypts_something_is_never_scheduled_for_deletion(name: str, cloud: str) -> None:
    """With `secretsKey` set later, the program registers no key any more."""
    clouds, changed = Clouds(), deepcopy(STACKS[name])
    first = sent(STACKS[name], clouds)
    state = clouds.create(first)
    changed["cluster"]["create"]["secretsKey"] = OWN_KEY[cloud]
    left = {one.urn for one in sent(changed, clouds)}
    gone = [one for one in first if one.urn not in left]
    assert KEYS & {one.type for one in gone}
    clouds.destroy(reversed(gone), state)
    assert clouds.scheduled == []


def registration(type_: str, **inputs: Json) -> Registration:
    return Registration("urn", type_, "one", custom=True, inputs=inputs)


def test_the_model_refuses_what_clouds_refuse() -> None:
    """What the program did before: a ring with a fixed name, a log group that is deleted, and a key that goes."""
    ring = registration("gcp:kms/keyRing:KeyRing", name="r", project="p", location="l")
    log = registration(LOG_GROUP, name="/aws/eks/ml/cluster", retentionInDays=365)
    key = registration("aws:kms/key:Key")
    for one in (ring, log):
        clouds = Clouds()
        clouds.destroy([one], clouds.create([one]))
        with pytest.raises(TakenError):
            clouds.create([one])
    clouds = Clouds()
    clouds.destroy([key], clouds.create([key]))
    assert clouds.scheduled == ["one"]
