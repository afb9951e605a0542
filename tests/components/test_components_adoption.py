"""Objects that a stack adopts have another provider under Pulumi's engine; all others keep theirs."""

from collections.abc import Sequence

import pytest
from builders import EXISTING, Data, errors, stack, team
from repository import ROOT

from gpu_tenancy.engine.checks import adoption_problems
from gpu_tenancy.engine.objects import is_object, kubernetes_objects
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, to_config

ADOPTED = ("Namespace/vision", "LocalQueue.kueue.x-k8s.io/vision/vision", "ResourceQuota/vision/budget")


def adopting(*names: str) -> Data:
    vision = team(gpus={"h100": {"guaranteed": 8}}, objects={"services": 3})
    return stack(cluster={**EXISTING, "adopt": list(names)}, teams={"vision": vision})


def rendered(sections: Data) -> Rendered:
    return render(ROOT, project="p", stack="s", config=to_config(Source(sections)))


def by_provider(program: Rendered, provider: str) -> set[str]:
    """The objects with this provider, by the names under which they can be adopted."""
    urns = {one.urn for one in program.registrations if is_object(one) and f"::{provider}::" in one.provider}
    return {Reference.of(one.manifest).adoptable for one in kubernetes_objects(program) if one.urn in urns}


def names(program: Rendered) -> set[str]:
    return {Reference.of(one.manifest).adoptable for one in kubernetes_objects(program)}


def test_the_named_objects_have_the_provider_that_takes_over_and_the_rest_has_not() -> None:
    program = rendered(adopting(*ADOPTED))
    assert by_provider(program, "cluster-adopting") == {*ADOPTED}
    assert by_provider(program, "cluster") == names(program) - {*ADOPTED}
    plain, takes_over = sorted(
        (one for one in program.registrations if one.type == "pulumi:providers:kubernetes"), key=lambda one: one.urn
    )
    assert takes_over.inputs == {**plain.inputs, "upsertExistingObjects": "true", "enablePatchForce": "true"}
    # The engine replaces resources whose provider changes, unless this is the same.
    assert plain.inputs["clusterIdentifier"]


def test_without_names_there_is_no_second_provider() -> None:
    program = rendered(adopting())
    assert [one.urn.rpartition("::")[2] for one in program.registrations if "providers" in one.type] == ["cluster"]


def test_every_object_of_a_stack_can_be_named() -> None:
    every = names(rendered(adopting()))
    assert by_provider(rendered(adopting(*every)), "cluster-adopting") == every


def test_a_name_that_no_object_has_is_told_with_the_nearest_one() -> None:
    sections = adopting("Namespace/visoin", *ADOPTED)
    source = Source(sections)
    (problem,) = adoption_problems(source, load(source), rendered(sections))
    assert str(problem).startswith(
        "cluster.adopt[0]: Namespace/visoin is no object that this stack can adopt; remove it, or correct it: did you"
        " mean 'Namespace/vision'?"
    )


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        (["vision"], "cluster.adopt[0]: vision is not the name of one object; use KIND/NAME or"),
        (["Namespace/*"], "cluster.adopt[0]: Namespace/* is not the name of one object"),
        (["Job.batch/v1/vision/train"], "cluster.adopt[0]: Job.batch/v1/vision/train is not the name of one object"),
        (["Namespace/vision"] * 2, "lists Namespace/vision twice; remove one of them"),
    ],
)
def test_a_name_is_that_of_exactly_one_object(written: Sequence[str], rule: str) -> None:
    (error,) = errors(adopting(*written))
    assert rule in error
