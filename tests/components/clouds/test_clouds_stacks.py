"""The cloud resources of stacks: tables of cases, descriptions of clouds, and running pods."""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import aks_description
import eks_description
import gke_description
import pytest
from builders import Data
from cloud_descriptions import Description, Inputs, Place
from cloud_stacks import RESERVATION, eks_creation, eks_pool, eks_section, eks_stack, sent
from components_builders import Graph, platform, program
from object_cases import Case, cases
from pulumi.runtime.proto.resource_pb2 import RegisterResourceRequest, RegisterResourceResponse, Result
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.engine.recording import RecordingMonitor, Registration

DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "aws": eks_description.DESCRIPTION,
    "gcp": gke_description.DESCRIPTION,
    "azure": aks_description.DESCRIPTION,
}
PACKAGES: Final = {"aws": "aws:", "gcp": "gcp:", "azure": "azure-native:"}
FREE: Final = {"labels", "nodeLabels", "resourceLabels", "tags", "tagsAll"}  # maps whose keys are the stack's own
CLOUD_OF: Final = {stack: cloud for cloud, description in DESCRIPTIONS.items() for stack in description.stacks}


@dataclass(frozen=True)
class Sent:
    """One resource of a stack, and its description."""

    cloud: str
    stack: str
    resource: Registration

    @property
    def description(self) -> Description:
        return DESCRIPTIONS[self.cloud]

    @property
    def inputs(self) -> Inputs:
        return cast("Inputs", self.resource.inputs)

    def problems(self, inputs: Inputs | None = None) -> list[str]:
        return self.description.problems(self.resource.type, self.inputs if inputs is None else inputs)

    def __str__(self) -> str:
        return f"{self.stack}-{self.resource.type.rpartition(':')[2]}-{self.resource.name}"


def sent_to(cloud: str, stack: str) -> list[Sent]:
    registrations = [
        registration
        for registration in stack_of_repository(stack).rendered.registrations
        if not registration.external_id
    ]
    return [Sent(cloud, stack, resource) for resource in registrations if resource.type.startswith(PACKAGES[cloud])]


@cache
def described(stack: str) -> list[Sent]:
    return [
        resource for resource in sent_to(CLOUD_OF[stack], stack) if resource.resource.type in resource.description.types
    ]


@cache
def kinds(stack: str) -> list[Sent]:
    """One resource for each set of keys of a type: mutations of others would be the same."""
    found: dict[tuple[str, str], Sent] = {}
    for resource in described(stack):
        found.setdefault((resource.resource.type, repr(sorted(map(str, keys(resource.inputs))))), resource)
    return list(found.values())


def keys(value: object, at: Place = ()) -> Iterator[Place]:
    """The place of every key, and of every position in a list, of some inputs."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield (*at, key)
            yield from keys(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from keys(inner, (*at, index))


def changed(inputs: Inputs, place: Place, key: str | int | None, value: object = None) -> Inputs:
    """The inputs with the value at a place renamed or replaced, or deleted if there is no key."""
    copy = deepcopy(dict(inputs))
    around: Any = copy
    for part in place[:-1]:
        around = around[part]
    before = around[place[-1]]
    del around[place[-1]]
    if key is not None and isinstance(around, list):
        cast("list[Any]", around).insert(int(key), value)
    elif key is not None:
        around[key] = before if value is None else value
    return copy


def text_at(inputs: Inputs, place: Place) -> str:
    value: Any = inputs
    for part in place:
        value = value[part]
    return str(value)


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_all_inputs_are_described_or_listed_as_undescribed(stack: str) -> None:
    description = DESCRIPTIONS[CLOUD_OF[stack]]
    assert described(stack)
    assert {resource.resource.type for resource in sent_to(CLOUD_OF[stack], stack)} <= description.types | set(
        description.undescribed
    )
    assert description.types.isdisjoint(description.undescribed)


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_inputs_match_the_clouds_description(stack: str) -> None:
    assert {str(resource): found for resource in described(stack) if (found := resource.problems())} == {}


def missing(one: Sent) -> Mapping[Place, Inputs]:
    places = one.description.required(one.resource.type, one.inputs)
    return {place: changed(one.inputs, place, None) for place in places}


def misspelt_words(one: Sent) -> Mapping[Place, Inputs]:
    places = one.description.enumerated(one.resource.type, one.inputs)
    return {place: changed(one.inputs, place, place[-1], f"{text_at(one.inputs, place)}X") for place in places}


def misspelt_keys(one: Sent) -> Mapping[Place, Inputs]:
    places = [place for place in keys(one.inputs) if not isinstance(place[-1], int) and not FREE & set(place[:-1])]
    assert places
    return {place: changed(one.inputs, place, f"{place[-1]}X") for place in places}


@pytest.mark.parametrize("mutants", [missing, misspelt_words, misspelt_keys])
@pytest.mark.parametrize("stack", CLOUD_OF)
def test_the_description_notices_each_mutation(stack: str, mutants: Callable[[Sent], Mapping[Place, Inputs]]) -> None:
    unnoticed = [
        f"{resource} {place}"
        for resource in kinds(stack)
        for place, inputs in mutants(resource).items()
        if not resource.problems(inputs)
    ]
    assert unnoticed == []


@pytest.mark.parametrize("cloud", DESCRIPTIONS)
def test_each_cloud_requires_something_and_has_enumerations(cloud: str) -> None:
    own = [resource for stack in DESCRIPTIONS[cloud].stacks for resource in kinds(stack)]
    assert sum(len(resource.description.required(resource.resource.type, resource.inputs)) for resource in own) > 5
    assert sum(len(resource.description.enumerated(resource.resource.type, resource.inputs)) for resource in own) > 5


# The resources of clouds that stacks become, by the tables in `cases`


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases"))
def test_resources_of_a_stack(case: Case) -> None:
    program = case.verify()
    for one in program.rendered.registrations if program else ():
        for description in DESCRIPTIONS.values():
            if one.type in description.types and not one.external_id:
                assert description.problems(one.type, cast("Inputs", one.inputs)) == []


# A node pool that cannot start fails alone: nothing else in a cluster waits for it


CLOUD_STACKS: Final = ("dev-aws", "prod-aws", "prod-gcp", "prod-azure")
SYSTEM: Final = ("::cluster-system-group", "::cluster-gpu-tenancy-system")  # ends of the URNs of system nodes
POOLS: Final = {"NodeGroup", "NodePool", "AgentPool"}


def pools(found: Graph) -> set[str]:
    """Node pools by URN, including Karpenter's objects."""
    return {urn for urn, one in found.known.items() if one.custom and one.type.rpartition(":")[2] in POOLS}


@pytest.mark.parametrize("name", [*CLOUD_STACKS, "karpenter"])
def test_a_pool_without_capacity_blocks_nothing_in_the_cluster(name: str) -> None:
    """All pools and their dependents fail: no object, release or right is one of them."""
    dependencies = Graph(
        platform(on_karpenter()).rendered if name == "karpenter" else stack_of_repository(name).rendered
    )
    failing = {urn for urn in pools(dependencies) if not urn.endswith(SYSTEM)}
    assert len(failing) > 1
    blocked = {one.type for one in dependencies.known.values() if failing & dependencies.all_needs(one)}
    assert blocked <= {"aws:autoscaling/tag:Tag"}  # it describes the pool itself to Cluster Autoscaler


def on_karpenter() -> Data:
    return eks_stack(eks_creation(eks_section(autoscaler="karpenter")))


def test_the_program_goes_on_after_failed_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `--continue-on-error`: all other resources are registered with the same inputs."""
    body = "from components.platform import build\nbuild(made)"
    expected = program(on_karpenter(), body).rendered.registrations
    register = RecordingMonitor.RegisterResource

    def failing(monitor: RecordingMonitor, request: RegisterResourceRequest) -> RegisterResourceResponse:
        response = register(monitor, request)
        if request.type.endswith(":NodePool"):
            return RegisterResourceResponse(urn=response.urn, result=Result.FAIL)
        return response

    monkeypatch.setattr(RecordingMonitor, "RegisterResource", failing)
    registered = program(on_karpenter(), body).rendered.registrations
    assert [(one.urn, one.inputs) for one in registered] == [(one.urn, one.inputs) for one in expected]
    assert len(expected) > 50


# Running work stays: what each cloud's stacks send to autoscalers, upgrades and repairs of nodes


STACKS: Final = ("dev-aws", "prod-aws", "prod-azure", "prod-gcp")
GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
POOL: Final = "gcp:container/nodePool:NodePool"
AKS: Final = "azure-native:containerservice:AgentPool"


def judged(kind: str, inputs: Any) -> bool | None:
    """Whether an input ends running pods only if required; None if it ends none."""
    if kind == "kubernetes:helm.sh/v3:Release" and inputs["name"] == "cluster-autoscaler":
        flags = inputs["values"]["extraArgs"]
        below = [flags[f"scale-down-{of}utilization-threshold"] for of in ("", "gpu-")]
        # Above 0, or no node is removed; one of 100 time slices is above it.
        return all(0 < limit < 0.01 for limit in below) and flags["ignore-daemonsets-utilization"]
    if kind == GROUP:
        # Not forced: a disruption budget stops it. MINIMAL takes no node more, one at a time.
        return "forceUpdateVersion" not in inputs and inputs["updateConfig"]["maxUnavailable"] == 1
    # Nodes with a maximum run time end by themselves before an upgrade.
    if kind == POOL and inputs["nodeConfig"].get("guestAccelerators") and not inputs["nodeConfig"].get("flexStart"):
        (policy,) = inputs["maintenancePolicies"]
        return policy == {"exclusionUntilEndOfSupports": [{"enabled": True}]}
    if kind == "gcp:container/cluster:Cluster":
        return inputs["clusterAutoscaling"]["autoscalingProfile"] == "BALANCED"
    if kind == AKS and inputs["scaleSetPriority"] == "Regular":
        return inputs["upgradeSettings"]["drainTimeoutInMinutes"] == 60
    return None


@pytest.mark.parametrize("name", STACKS)
def test_autoscalers_and_upgrades_of_a_stack_end_no_running_job(name: str) -> None:
    sent = stack_of_repository(name).rendered.registrations
    verdicts = {made.name: judged(made.type, made.inputs) for made in sent if not made.external_id}
    found = {made: verdict for made, verdict in verdicts.items() if verdict is not None}
    assert found
    assert [made for made, verdict in found.items() if not verdict] == []


@pytest.mark.parametrize(
    ("capacity", "drain"),
    [
        ({}, "24h"),
        ({"capacity": "spot"}, "90s"),
        ({"capacity": {"kind": "capacity-block", "reservation": RESERVATION}, "zones": ["eu-central-1a"]}, "10m"),
    ],
)
@pytest.mark.parametrize("drift", [None, {}])
def test_karpenter_removes_only_empty_nodes_and_ends_drains(capacity: Any, drain: str, drift: Any) -> None:
    cluster = eks_section(autoscaler="karpenter", **({} if drift is None else {"drift": drift}))
    made = sent(eks_stack(cluster, gpu=eks_pool(**capacity)))
    pools = [cast("Any", one.inputs)["spec"] for one in made if one.inputs.get("kind") == "NodePool"]
    assert pools
    drains = {one["template"]["spec"]["terminationGracePeriod"] for one in pools}
    assert drain in drains <= {drain, "24h"}
    for one in pools:
        disruption = one["disruption"]
        assert disruption["consolidationPolicy"] == "WhenEmpty"
        barred = {reason for budget in disruption["budgets"] if budget["nodes"] == "0" for reason in budget["reasons"]}
        assert {"Underutilized", "Drifted"} <= barred


def test_the_page_says_what_is_sent() -> None:
    page = (ROOT / "docs" / "clouds.md").read_text(encoding="utf-8")
    section_ = page.partition("\n## What ends running pods\n")[2].partition("\n## ")[0]
    sent = [made.inputs for name in STACKS for made in stack_of_repository(name).rendered.registrations]
    text = json.dumps(sent, default=str)
    for word in (
        "cluster-autoscaler.kubernetes.io/safe-to-evict",
        "karpenter.sh/do-not-disrupt",
        "scale-down-gpu-utilization-threshold",
        "exclusionUntilEndOfSupports",
        "BALANCED",
    ):
        assert (word in section_, word in text) == (True, True), word
