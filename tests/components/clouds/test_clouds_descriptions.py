"""What is sent for each cloud's stacks, held against the cloud's own description of its API: the same for all three."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

import aks_description
import eks_description
import gke_description
import pytest
from cloud_descriptions import Description, Inputs, Place
from rendered_stacks import stack_of_repository

from gpu_tenancy.engine.recording import Registration

DESCRIPTIONS: Final[Mapping[str, Description]] = {
    "aws": eks_description.DESCRIPTION,
    "gcp": gke_description.DESCRIPTION,
    "azure": aks_description.DESCRIPTION,
}
PACKAGES: Final = {"aws": "aws:", "gcp": "gcp:", "azure": "azure-native:"}
FREE: Final = {"labels", "nodeLabels", "resourceLabels", "tags", "tagsAll"}
"""Maps whose keys are the stack's own."""
CLOUD_OF: Final = {stack: cloud for cloud, description in DESCRIPTIONS.items() for stack in description.stacks}


@dataclass(frozen=True)
class Sent:
    """One resource of a stack, and who can judge it."""

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


def sent(cloud: str, stack: str) -> list[Sent]:
    """All that a stack sends to its cloud; what it only reads is not sent."""
    registrations = [
        registration
        for registration in stack_of_repository(stack).rendered.registrations
        if not registration.external_id
    ]
    return [Sent(cloud, stack, resource) for resource in registrations if resource.type.startswith(PACKAGES[cloud])]


@cache
def described(stack: str) -> list[Sent]:
    """What a stack sends that its cloud describes."""
    return [
        resource for resource in sent(CLOUD_OF[stack], stack) if resource.resource.type in resource.description.types
    ]


@cache
def kinds(stack: str) -> list[Sent]:
    """One of each way a type of resource is sent, by the keys that it has: mutations of twins would say the same."""
    found: dict[tuple[str, str], Sent] = {}
    for resource in described(stack):
        found.setdefault((resource.resource.type, repr(sorted(map(str, keys(resource.inputs))))), resource)
    return list(found.values())


def unnoticed(stack: str, mutants: Callable[[Sent], Mapping[Place, Inputs]]) -> list[str]:
    """The places of a stack where its cloud's description has nothing against what is no longer right."""
    return [
        f"{resource} {place}"
        for resource in kinds(stack)
        for place, inputs in mutants(resource).items()
        if not resource.problems(inputs)
    ]


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
    """The inputs with what is at a place under another key, or with another value, or gone where there is no key."""
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
def test_all_inputs_of_a_stack_are_described_or_listed_as_undescribed(stack: str) -> None:
    description = DESCRIPTIONS[CLOUD_OF[stack]]
    assert described(stack)
    assert {resource.resource.type for resource in sent(CLOUD_OF[stack], stack)} <= description.types | set(
        description.undescribed
    )
    assert description.types.isdisjoint(description.undescribed)


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_inputs_match_the_clouds_description(stack: str) -> None:
    assert {str(resource): found for resource in described(stack) if (found := resource.problems())} == {}


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_required_inputs_are_present(stack: str) -> None:
    def mutants(one: Sent) -> Mapping[Place, Inputs]:
        places = one.description.required(one.resource.type, one.inputs)
        return {place: changed(one.inputs, place, None) for place in places}

    assert unnoticed(stack, mutants) == []


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_no_word_of_an_enumeration_may_be_misspelt(stack: str) -> None:
    def mutants(one: Sent) -> Mapping[Place, Inputs]:
        places = one.description.enumerated(one.resource.type, one.inputs)
        return {place: changed(one.inputs, place, place[-1], f"{text_at(one.inputs, place)}X") for place in places}

    assert unnoticed(stack, mutants) == []


@pytest.mark.parametrize("stack", CLOUD_OF)
def test_no_key_may_be_misspelt(stack: str) -> None:
    def mutants(one: Sent) -> Mapping[Place, Inputs]:
        places = [place for place in keys(one.inputs) if not isinstance(place[-1], int) and not FREE & set(place[:-1])]
        assert places
        return {place: changed(one.inputs, place, f"{place[-1]}X") for place in places}

    assert unnoticed(stack, mutants) == []


@pytest.mark.parametrize("cloud", DESCRIPTIONS)
def test_each_cloud_requires_something_and_has_enumerations(cloud: str) -> None:
    own = [resource for stack in DESCRIPTIONS[cloud].stacks for resource in kinds(stack)]
    assert sum(len(resource.description.required(resource.resource.type, resource.inputs)) for resource in own) > 5
    assert sum(len(resource.description.enumerated(resource.resource.type, resource.inputs)) for resource in own) > 5
