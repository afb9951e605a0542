"""An environment in several Pulumi stacks has the same objects as in one."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import pulumi
import pytest
from builders import errors, stack
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.engine.objects import is_object
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.model.source import Source, to_config

STACKS: Final = (
    *("dev-aws", "example-shared-queue", "example-three-teams", "example-tree"),
    *("local", "prod-aws", "prod-azure", "prod-gcp"),
)
CONNECTION: Final[dict[str, Any]] = {"kubeconfig": "{}", "identifier": "eu-central-1/ml"}
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pulumi:pulumi:StackReference": {"outputs": {"connection": CONNECTION}}
}


def divided(name: str) -> tuple[Source, Plan]:
    source = read_stack(name, ROOT)
    source = replace(source, sections={**source.sections, "split": {}})
    return source, plan(load(source))


def rendered_part(name: str, source: Source, part: str) -> Rendered:
    config = {**to_config(source), "gpu-tenancy:part": part}
    return render(ROOT, project="gpu-tenancy", stack=f"{name}.{part}", config=config, answers=ANSWERS)


def resources(rendered: Rendered, name: str) -> dict[str, Registration]:
    """Real resources by URN, with the environment in place of the stack."""
    return {
        one.urn.replace(f"urn:pulumi:{rendered.stack}::", f"urn:pulumi:{name}::"): one
        for one in rendered.registrations
        if one.custom and not one.type.startswith("pulumi:")
    }


@cache
def in_parts(name: str) -> dict[str, dict[str, Registration]]:
    """The real resources of each part."""
    source, planned = divided(name)
    return {part: resources(rendered_part(name, source, part), name) for part in planned.parts}


@pytest.mark.parametrize("name", STACKS)
def test_the_parts_have_each_resource_of_the_whole_once_with_the_same_content(name: str) -> None:
    whole = resources(stack_of_repository(name).rendered, name)
    urns = [urn for own in in_parts(name).values() for urn in own]
    assert len(urns) == len(set(urns))
    found = {urn: one.inputs for own in in_parts(name).values() for urn, one in own.items()}
    assert found == {urn: one.inputs for urn, one in whole.items()}


@pytest.mark.parametrize("name", STACKS)
def test_what_an_object_depends_on_is_in_its_part_or_in_one_that_is_deployed_before(name: str) -> None:
    home = {urn: number for number, own in enumerate(in_parts(name).values()) for urn in own}
    for urn, one in resources(stack_of_repository(name).rendered, name).items():
        for needed in set(one.dependencies) & set(home):
            assert home[needed] <= home[urn], (urn, needed)


def test_objects_of_each_part_use_the_providers_of_the_cluster_of_another_stack() -> None:
    source, planned = divided("prod-aws")
    assert planned.parts == ("cluster", "operators", "tenancy")
    rendered = rendered_part("prod-aws", source, "tenancy")
    provider, reference = (
        next(one for one in rendered.registrations if one.type == kind)
        for kind in ("pulumi:providers:kubernetes", "pulumi:pulumi:StackReference")
    )
    assert provider.inputs["kubeconfig"] == CONNECTION["kubeconfig"]
    assert provider.inputs["clusterIdentifier"] == CONNECTION["identifier"]
    assert reference.external_id == "organization/gpu-tenancy/prod-aws.cluster"
    used = {one.provider.rpartition("::")[0] for one in rendered.registrations if is_object(one)}
    assert used == {provider.urn}


def test_a_divided_environment_is_not_deployed_as_one_stack_by_accident() -> None:
    source, _ = divided("example-tree")
    with pytest.raises(pulumi.RunError) as refused:
        render(ROOT, project="gpu-tenancy", stack="example-tree", config=to_config(source))
    assert str(refused.value) == (
        "split: example-tree is divided into the stacks example-tree.tenancy;"
        " run `tenancy up example-tree`, or remove split"
    )


def test_a_part_that_the_environment_does_not_have_is_refused_with_those_that_it_has() -> None:
    source, _ = divided("example-tree")
    with pytest.raises(pulumi.RunError, match=r"cohort\.gone is not a part of example-tree; known: tenancy;"):
        rendered_part("example-tree", source, "cohort.gone")


def test_cohorts_get_no_stacks() -> None:
    (error,) = errors(stack(split={"cohorts": ["org"]}))
    assert error == "split.cohorts: unknown key 'cohorts'; remove it: no key is defined"
