"""All resources of a stack: lookups and their number, unknown values, and fixes that name the stack's keys."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from policy_builders import UNKNOWN, Sample, manifest

import cloud_rules
import workload_rules
from gpu_tenancy.model.schema import file_schema
from rule_engine import Pack, Resource, Stack, Subject, UnknownValueError, kubernetes
from rule_engine.evaluator import Evaluator
from rule_engine.rules import AnyRule
from rule_engine.stacks import Among, located_at
from workload_rules import PACK, jobs, security


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


JOB = "kubernetes:batch/v1:Job"
TEXT = "requests 8 nvidia.com/gpu without a time limit; set spec.activeDeadlineSeconds: 604800 or less"
OF_STACK = f"urn:pulumi:prod::gpu-tenancy::gpu-tenancy:tenancy:Tenancy$gpu-tenancy:tenancy:TrainingJob${JOB}::nightly"


def test_a_job_of_a_stack_is_fixed_by_the_key_of_the_stack() -> None:
    message = jobs.gpu_jobs_end.message(TEXT, Resource(JOB, urn=OF_STACK))
    assert message == (
        "requests 8 nvidia.com/gpu without a time limit; set `deadline` of the job in the stack to 7d or less"
    )


@pytest.mark.parametrize(
    "urn", [f"urn:pulumi:prod::gpu-tenancy::{JOB}::gpu-tenancy:nightly", f"urn:pulumi:prod::p::my:Team${JOB}::n", ""]
)
def test_fix_for_another_program_names_the_kubernetes_field(urn: str) -> None:
    assert jobs.gpu_jobs_end.message(TEXT, Resource(JOB, urn=urn)) == TEXT


def test_a_rule_without_a_fix_for_stacks_keeps_its_own() -> None:
    text = "is privileged; remove it"
    assert security.no_privileged.message(text, Resource(JOB, urn=OF_STACK)) == text


@pytest.mark.parametrize("pack", [workload_rules.PACK, cloud_rules.PACK], ids=lambda pack: pack.name)
def test_each_key_in_a_fix_is_a_key_of_a_stack(pack: Pack) -> None:
    schema: Any = file_schema()
    keys = {key for section in schema["$defs"].values() for key in section.get("properties", {})}
    keys |= {key.partition(":")[2] for key in schema["properties"]["config"]["properties"]}
    named = {
        part
        for rule in pack.rules
        for path in re.findall(r"`([\w.]+)(?:: \w+)?`", rule.stack_fix)
        for part in path.split(".")
    }
    assert len(named) > 3
    assert named <= keys


WHOLE: Final = [rule for rule in PACK.rules if rule.whole]
FEW: Final = 6
TIMES: Final = 4

LOOKUPS: Final = Path(__file__).with_name("lookups")
POOL: Final[dict[str, Any]] = {"amiType": "AL2023_x86_64_NVIDIA", "labels": {}}
CHART: Final[dict[str, Any]] = {"chart": "other", "version": "1.2.3"}


def samples(table: str, namespace: str, number: int) -> list[Sample]:
    text = (LOOKUPS / f"{table}.yaml").read_text(encoding="utf-8")
    filled = text.replace("NAMESPACE", namespace).replace("NUMBER", str(number)).replace("NEXT", str(number + 1))
    return [manifest(yaml.safe_dump(document)) for document in yaml.load_all(filled, yaml.CSafeLoader)]


@cache
def program(count: int, *, one_namespace: bool) -> tuple[Sample, ...]:
    """All objects that rules over a stack look up, `count` times: in one namespace, or each in its own."""
    resources: list[Sample] = []
    for number in range(count):
        namespace = "ml" if one_namespace else f"ml-{number}"
        if number == 0 or not one_namespace:
            resources += samples("once", namespace, number)
        resources += samples("many", namespace, number)
        resources.append(Sample("aws:eks/nodeGroup:NodeGroup", POOL, f"pool-{number}"))
        chart = CHART if number else CHART | {"chart": "gpu-operator"}
        resources.append(Sample("kubernetes:helm.sh/v3:Release", chart, f"chart-{number}"))
    return tuple(resources)


class Counting(Stack):
    """A stack that counts the parts that rules visit."""

    visits = 0

    def _matching(
        self, subject: Subject[Any], predicate: Callable[[Any], bool], among: "Sequence[Among[Any]]"
    ) -> Iterator[Any]:
        def counted(part: Any) -> bool:
            self.visits += 1
            return predicate(part)

        return super()._matching(subject, counted, among)


def visits(rule: AnyRule, count: int, *, one_namespace: bool) -> int:
    resources: list[Resource] = [sample.resource() for sample in program(count, one_namespace=one_namespace)]
    stack, evaluator = Counting(resources), Evaluator(PACK)
    # Trust makes the rule about time-sliced GPUs look for a stranger among all.
    settings = {"trusting": {"all": ["*"]}} if rule.name == "time-slicing-trust" else {}
    evaluator.configure({}, {rule.name: settings})
    parts = [part for resource in resources if rule.on.selects(resource) for part in resource.parts(rule.on)]
    assert parts, "the program has nothing that the rule is about"
    errors = [
        finding.message
        for resource in resources
        if rule.on.selects(resource)
        for finding in evaluator.findings(rule, resource, stack)
        if finding.outcome in {"error", "unknown"}
    ]
    assert errors == []
    return stack.visits


@pytest.mark.slow
@pytest.mark.parametrize("one_namespace", [True, False], ids=["one namespace", "many namespaces"])
@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.name) for rule in WHOLE])
def test_the_lookups_of_stack_rules_grow_linearly_with_the_stack(rule: AnyRule, *, one_namespace: bool) -> None:
    few = visits(rule, FEW, one_namespace=one_namespace)
    many = visits(rule, FEW * TIMES, one_namespace=one_namespace)
    assert few
    assert many <= few * TIMES * 1.2, f"{few} visits for {FEW}, {many} for {FEW * TIMES}"
