"""All resources of a stack: lookups, and unknown values."""

from collections.abc import Callable
from typing import Any

import pytest
from policy_builders import UNKNOWN, Sample

from rule_engine import Resource, Stack, Subject, UnknownValueError, kubernetes
from rule_engine.stacks import located_at


def _named(subject: str) -> Subject[Resource]:
    def find(resource: Resource) -> list[Resource]:
        resource.props.text("metadata", "labels", "all")
        return [resource]

    return Subject(subject, kubernetes(f"core:{subject}"), find)


MAPS, SECRETS = _named("ConfigMap"), _named("Secret")


def _namespace(resource: Resource) -> str:
    return resource.props.text("metadata", "namespace")


def _name(resource: Resource) -> str:
    return resource.props.text("metadata", "name")


def _label(resource: Resource) -> str:
    return resource.props.text("metadata", "labels", "a")


def _always(_: Resource) -> bool:
    return True


def given(kind: str, name: str, namespace: str = "ml", **labels: Any) -> Resource:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return Sample(f"kubernetes:core/v1:{kind}", {"metadata": metadata}, name).resource()


def test_lookups_keep_subjects_apart() -> None:
    stack = Stack([given("ConfigMap", "a"), given("Secret", "b")])
    for subject, name in ((MAPS, "a"), (SECRETS, "b"), (MAPS, "a")):
        found = stack.first(subject, _always, (_namespace, "ml"), (_name, name))
        assert found is not None
        assert found.name == name
        assert stack.first(subject, _always, (_namespace, "ml"), (_name, "c")) is None


LOOKED_UP: dict[str, Callable[[Stack], object]] = {
    "a": lambda stack: stack.matching(MAPS, bool),
    "b": lambda stack: stack.first(MAPS, lambda each: _label(each) == "x"),
    "c": lambda stack: stack.matching(MAPS, lambda each: _label(each) == "x"),
    "d": lambda stack: stack.first(MAPS, _always, (_label, "x")),
    "e": lambda stack: stack.first(MAPS, _always, (_label, "x"), (_name, "x")),
    "f": lambda stack: stack.first(MAPS, _always, (_namespace, "x"), (_name, "x")),
}


@pytest.mark.parametrize(
    ("which", "labels", "path"),
    [
        ("a", {"all": UNKNOWN}, "labels.all"),
        ("b", {"all": UNKNOWN}, "labels.all"),
        ("b", {"a": UNKNOWN}, "labels.a"),
        ("c", {"a": UNKNOWN}, "labels.a"),
        ("d", {"a": UNKNOWN}, "labels.a"),
        ("d", {"all": UNKNOWN}, "labels.all"),
        ("e", {"a": UNKNOWN}, "labels.a"),
        ("f", {"all": UNKNOWN}, "labels.all"),
    ],
)
def test_the_first_unknown_part_that_can_match_is_named(which: str, labels: dict[str, Any], path: str) -> None:
    stack = Stack([given("ConfigMap", "one", **labels), given("ConfigMap", "two", **labels)])
    for _ in range(2):
        with pytest.raises(UnknownValueError, match=rf"^ConfigMap ml/one: metadata\.{path} is unknown"):
            LOOKED_UP[which](stack)


def test_an_unknown_part_is_no_matter_if_a_known_one_matches() -> None:
    stack = Stack([given("ConfigMap", "one", a=UNKNOWN), given("ConfigMap", "two", a="x")])
    found = stack.first(MAPS, lambda each: _label(each) == "x")
    assert found is not None
    assert found.name == "two"


@pytest.mark.parametrize("labels", [{}, {"all": UNKNOWN}])
def test_a_stack_has_a_part_that_is_unknown(labels: dict[str, Any]) -> None:
    stack = Stack([given("ConfigMap", "one", **labels)])
    assert (stack.has(MAPS), stack.has(SECRETS)) == (True, False)


def test_a_field_that_a_patch_does_not_set_is_named_first() -> None:
    patch = Sample("kubernetes:core/v1:ConfigMapPatch", {"metadata": {"name": "a"}}).resource()

    def both(resource: Resource) -> str:
        return _label(resource) + resource.props.text("data", "b")

    with pytest.raises(UnknownValueError, match=r"^ConfigMapPatch a: metadata\.labels\.a is not set by the patch"):
        Stack([patch]).first(
            Subject("maps", kubernetes("core:ConfigMap"), lambda each: [each]), lambda each: both(each) == "x"
        )


def test_an_unknown_value_with_a_place_keeps_it() -> None:
    one, two = given("ConfigMap", "one"), given("ConfigMap", "two")
    with pytest.raises(UnknownValueError, match=r"^ConfigMap ml/one: a is unknown$"), located_at(two), located_at(one):
        raise UnknownValueError(("a",), "is unknown")


def test_what_the_cloud_sets_is_known_once_it_is_known() -> None:
    props = {"metadata": {"name": "a"}, "data": {"b": "c"}, "status": UNKNOWN, "kind": UNKNOWN}
    resource = Sample("kubernetes:core/v1:ConfigMap", props, needs={"kind": ()}).resource()
    assert sorted(resource.props.entries()) == ["data", "kind", "metadata"]


@pytest.mark.parametrize(
    ("parents", "of_stack"),
    [
        ("", False),
        ("gpu-tenancy:index:Team$", True),
        ("my:index:Everything$gpu-tenancy:index:Team$", True),
        ("my-gpu-tenancy:index:Team$", False),
    ],
)
def test_parents_show_resources_of_a_stack(parents: str, *, of_stack: bool) -> None:
    sample = Sample("kubernetes:core/v1:ConfigMap", {}, parents=parents)
    assert sample.resource().of_stack is of_stack
