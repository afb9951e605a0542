"""Patches and lists: the remaining object, its read fields, and conclusions of rules."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml
from kit_builders import PackClient, rule
from policy_builders import UNKNOWN, Sample, doubt, manifest
from pulumi.runtime.proto import analyzer_pb2 as wire

from rule_engine import Resource, Settings, Stack, Subject, UnknownValueError, View, evaluator, kubernetes
from rule_engine.evaluator import Outcome
from rule_engine.reading import Path, Reads
from rule_engine.resources import item_type, merged, object_type

# Types.


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("kubernetes:apps/v1:DeploymentPatch", ("kubernetes:apps/v1:Deployment", True)),
        ("kubernetes:apps/v1:Deployment", ("kubernetes:apps/v1:Deployment", False)),
        ("kubernetes:example.com/v1:Patch", ("kubernetes:example.com/v1:Patch", False)),
        ("aws:ssm/baselinePatch:BaselinePatch", ("aws:ssm/baselinePatch:BaselinePatch", False)),
    ],
)
def test_a_patch_has_the_type_of_its_object(token: str, expected: tuple[str, bool]) -> None:
    assert object_type(token) == expected


@pytest.mark.parametrize(
    ("token", "item", "expected"),
    [
        ("kubernetes:apps/v1:DeploymentList", 7, "kubernetes:apps/v1:Deployment"),
        ("kubernetes:core/v1:List", {"apiVersion": "apps/v1", "kind": "Deployment"}, "kubernetes:apps/v1:Deployment"),
        ("kubernetes:core/v1:List", {"apiVersion": "v1", "kind": "Pod"}, "kubernetes:core/v1:Pod"),
        ("kubernetes:core/v1:List", {"apiVersion": 1, "kind": "Pod"}, ""),
        ("kubernetes:core/v1:List", {"apiVersion": "v1", "kind": 7}, ""),
        ("kubernetes:core/v1:List", 7, ""),
        ("kubernetes:apps/v1:Deployment", {}, ""),
        ("aws:ec2/prefixList:PrefixList", {}, ""),
    ],
)
def test_the_items_of_a_list_have_a_type(token: str, item: Any, expected: str) -> None:
    assert item_type(token, item) == expected


# What is left of an object.


@pytest.mark.parametrize(
    ("below", "above", "left"),
    [
        ("{a: {b: 1, c: {d: 2}}}", "{a: {c: {e: 3}}}", "{a: {b: 1, c: {d: 2, e: 3}}}"),
        ("{a: {b: 1}}", "{c: 2}", "{a: {b: 1}, c: 2}"),
        ("{podSelector: {a: b}}", "{podSelector: {c: d}}", "{podSelector: {c: d}}"),
        ("{roleRef: {a: b}}", "{roleRef: {c: d}}", "{roleRef: {c: d}}"),
        ("{a: {b: 1}}", "{a: [2]}", "{a: [2]}"),
        ("{a: [1]}", "{a: {b: 2}}", "{a: {b: 2}}"),
        ("{a: [1, 3]}", "{a: [2]}", "{a: [2]}"),
        ("{env: 1}", "{env: [{name: a}]}", "{env: [{name: a}]}"),
        ("{env: [{name: a}]}", "{env: 1}", "{env: 1}"),
        (
            "{containers: [{name: a, image: x, args: [b]}, {name: c}]}",
            "{containers: [{name: d}, {name: a, args: [e], env: [{name: f}]}]}",
            "{containers: [{name: a, image: x, args: [e], env: [{name: f}]}, {name: c}, {name: d}]}",
        ),
    ],
)
def test_patch_is_merged_as_by_server_side_apply(below: str, above: str, left: str) -> None:
    assert merged(yaml.safe_load(below), yaml.safe_load(above)) == yaml.safe_load(left)


# What is read.


@pytest.mark.parametrize(
    ("path", "is_noted"),
    [
        ("spec.replicas", True),
        ("name", True),
        ("metadata.labels", True),
        ("spec.rules.0.name", True),
        ("spec.containers.0.image", True),
        ("spec.containers.0.lifecycle.name", True),
        ("spec.name.containers.0", True),
        ("spec.containers.0.name", False),
        ("env.0.name", False),
        ("apiVersion", False),
        ("kind", False),
        ("metadata.name", False),
        ("metadata.namespace", False),
        ("metadata.generateName", False),
        ("status.replicas", False),
    ],
)
def test_identity_of_an_object_is_no_field_of_a_patch(path: str, *, is_noted: bool) -> None:
    reads = Reads()
    reads.note(tuple(path.split(".")), present=True)
    reads.note(tuple(path.split(".")), present=False)
    assert (bool(reads.present), bool(reads.absent)) == (is_noted, is_noted)


_PATCH: Final[dict[str, Any]] = {
    "metadata": {"name": "it"},
    "spec": {
        "replicas": 3.0,
        "selector": {"matchLabels": {"a": "b"}},
        "args": ["x"],
        "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
        "host": UNKNOWN,
    },
}
_CONTAINERS: Final = ("spec", "template", "spec", "containers")
READ: Final[dict[str, tuple[Callable[[View], object], str, str]]] = {
    "a field": (lambda view: view.text("spec", "replicas"), "spec.replicas", ""),
    "no field": (lambda view: view.text("spec", "paused"), "", "spec.paused"),
    "a field that is there": (lambda view: view.has("spec", "replicas"), "spec.replicas", ""),
    "a field that is not there": (lambda view: view.has("spec", "paused"), "", "spec.paused"),
    "a map": (lambda view: view.at("spec", "template"), "", ""),
    "a whole map": (lambda view: view.at("spec", "selector"), "spec.selector", ""),
    "no field of a whole map": (lambda view: view.at("spec", "selector", "matchLabels", "c"),
        "spec.selector spec.selector.matchLabels.c", ""),
    "a whole list": (lambda view: view.items("spec", "args"), "spec.args", ""),
    "a merged list": (lambda view: view.items(*_CONTAINERS), "", ""),
    "a field of an item": (lambda view: [item.text("image") for item in view.items(*_CONTAINERS)],
        "spec.template.spec.containers.0.image", ""),
    "an entry": (lambda view: view.entries("spec")["replicas"].path, "spec.replicas", ""),
    "no entry": (lambda view: "paused" in view.entries("spec"), "", "spec.paused"),
    "all entries": (lambda view: list(view.entries("spec").items()), "spec.args spec.host spec.replicas spec.selector",
        ""),
    "all entries, with a merged list": (lambda view: list(view.entries(*_CONTAINERS[:-1]).items()), "", ""),
    "no whole map": (lambda view: view.at("spec", "podSelector"), "", "spec.podSelector"),
    "an unknown value": (lambda view: view.at("spec", "host"), "spec.host", ""),
    "a field of an unknown value": (lambda view: view.at("spec", "host", "name"), "spec.host", ""),
    "a part": (lambda view: view.as_part().text("spec", "paused"), "", ""),
}  # fmt: skip


@pytest.mark.parametrize("what", READ)
def test_the_fields_of_a_patch_that_are_read_are_noted(what: str) -> None:
    function, present, absent = READ[what]
    props = Sample("kubernetes:apps/v1:DeploymentPatch", _PATCH).resource().props
    assert props.reads is not None
    try:
        function(props)
    except UnknownValueError:
        assert "unknown" in what
    read = props.reads.take()
    assert [" ".join(sorted(".".join(path) for path in paths)) for paths in (read.present, read.absent)] == [
        present,
        absent,
    ]


def test_an_entry_of_a_patch_has_its_whole_path() -> None:
    props = Sample("kubernetes:apps/v1:DeploymentPatch", _PATCH).resource().props
    assert props.entries("spec")["replicas"].path == ("spec", "replicas")


def test_cached_fact_counts_as_read_for_each_rule() -> None:
    resource = Sample("kubernetes:apps/v1:DeploymentPatch", _PATCH).resource()
    assert resource.reads is not None
    for field in ("paused", "strategy"):
        resource.props.text("spec", field)
        assert resource.once("replicas", lambda: resource.props.text("spec", "replicas")) == "3"
        read = resource.reads.take()
        assert ([*read.present], [*read.absent]) == ([("spec", "replicas")], [("spec", field)])


# What follows from that for the object that a patch leaves.

_SET: Final[Path] = ("spec", "a")
_NOT_SET: Final[Path] = ("spec", "b")
_UNEVALUATED: Final = "it: not evaluated: spec.b is not set by the patch; set it in the patch too, or change the object"
CONCLUDED: Final[dict[str, tuple[list[tuple[Outcome, list[Path]]], list[Path], list[Path], list[str]]]] = {
    "nothing read": ([], [], [], []),
    "nothing that it sets read": ([], [], [_NOT_SET], []),
    "without a message": ([], [_SET], [_NOT_SET], [f"broken {_UNEVALUATED}"]),
    "without a message, all set": ([], [_SET], [], []),
    "broken by what it sets": ([(Outcome.BROKEN, [])], [_SET], [], ["broken text"]),
    "broken, with more": ([(Outcome.BROKEN, [_NOT_SET])], [_SET], [_NOT_SET],
        ["broken text (spec.b is not set by the patch)"]),
    "broken by nothing that it sets": ([(Outcome.BROKEN, [_NOT_SET])], [], [_NOT_SET], []),
    "broken as a whole, and by what it does not set": ([(Outcome.BROKEN, []), (Outcome.BROKEN, [_NOT_SET])], [],
        [_NOT_SET], ["broken text", f"broken {_UNEVALUATED}"]),
    "unknown, with more": ([(Outcome.UNKNOWN, [_NOT_SET])], [_SET], [_NOT_SET], [f"broken {_UNEVALUATED}"]),
    "unknown": ([(Outcome.UNKNOWN, [])], [_SET], [], ["unknown text"]),
    "an error": ([(Outcome.ERROR, [_NOT_SET])], [], [_NOT_SET], ["error text (spec.b is not set by the patch)"]),
    "five fields": ([(Outcome.BROKEN, [(name,) for name in "bcdef"])], [_SET], [],
        ["broken text (b, c, d, e, f are not set by the patch)"]),
    "six fields": ([(Outcome.BROKEN, [(name,) for name in "bcdefg"])], [_SET], [],
        ["broken text (b, c, d, e, f, … are not set by the patch)"]),
}  # fmt: skip
"""Messages with the fields read for each that the patch does not set; all fields that were read: set, and not set."""


@pytest.mark.parametrize("what", CONCLUDED)
def test_a_message_is_about_the_object_that_a_patch_leaves(what: str) -> None:
    messages, present, absent, expected = CONCLUDED[what]
    resource = Sample("kubernetes:apps/v1:DeploymentPatch", {**_PATCH, "metadata": {}}).resource()
    found = evaluator.patch_messages(
        resource,
        resource,
        [(outcome, "text", Reads(absent=dict.fromkeys(paths))) for outcome, paths in messages],
        Reads(dict.fromkeys(present), dict.fromkeys(absent)),
    )
    shown = [f"{outcome} {text}".replace("DeploymentPatch it", "it") for outcome, text in found]
    assert [text.removesuffix(" in its own stack") for text in shown] == expected


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ("{apiVersion: v1, kind: a, metadata: {}, status: {}}", set[str]()),
        ("{kind: a, spec: {b: 1}, data: {}}", {"b", "data"}),
        ("{spec: 7}", {"spec"}),
    ],
)
def test_a_patch_says_nothing_of_an_object_but_its_name(fields: str, content: set[str]) -> None:
    assert Sample("kubernetes:apps/v1:DeploymentPatch", yaml.safe_load(fields)).resource().content() == content


# Rules.


def _items(resource: Resource) -> Iterator[Resource]:
    if resource.props.text("spec", "unit") == "GPU":
        yield resource


def _without_limit(resource: Resource, settings: Settings) -> Iterator[str]:  # noqa: ARG001 - as rules are called
    if resource.props.number("spec", "limit") is None:
        yield "has no limit; set one"


LIMITED: Final = rule("limited", _without_limit, on=Subject("budgets", kubernetes("example.com:Budget"), _items))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"unit": "CPU"}, []),
        ({"unit": "GPU", "limit": 8}, []),
        (
            {"unit": "GPU"},
            [(wire.MANDATORY, "BudgetPatch it: has no limit; set one (spec.limit is not set by the patch)")],
        ),
        ({"unit": UNKNOWN}, [(wire.ADVISORY, doubt("BudgetPatch it", "spec.unit"))]),
    ],
)
def test_what_a_rule_read_to_find_a_part_counts_for_its_messages(spec: dict[str, Any], found: list[Any]) -> None:
    patch = Sample("kubernetes:example.com/v1:BudgetPatch", {"metadata": {"name": "it"}, "spec": spec})
    assert PackClient(LIMITED).analyze(patch) == [("limited", *each) for each in found]


# A patch and its object in one stack.


def _space(name: str, **labels: str) -> Sample:
    metadata = {"name": name, "labels": labels}
    return manifest(yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))


def _account(namespace: str, patch: str = "", **fields: Any) -> Sample:
    metadata = {"name": "it", "namespace": namespace}
    return Sample(f"kubernetes:core/v1:ServiceAccount{patch}", {"metadata": metadata, **fields}, namespace)


def _left(*samples: Sample) -> list[tuple[str, Any]]:
    return [
        (resource.place.partition(" ")[0], resource.props.value)
        for resource in Stack(s.resource() for s in samples).resources
    ]


def test_patch_is_merged_by_kind_namespace_and_name() -> None:
    given = _account("a", a=1), _account("b", b=2)
    metadata = {"name": "it", "namespace": "b"}
    assert _left(*given, _account("b", "Patch", c=3)) == [
        ("ServiceAccount", given[0].props),
        ("ServiceAccountPatch", {"metadata": metadata, "b": 2, "c": 3}),
    ]
    other = _account("c", "Patch", c=3)
    assert _left(*given, other) == [*_left(*given), ("ServiceAccountPatch", other.props)]


def test_patch_of_a_cluster_scoped_object_is_merged() -> None:
    patch = Sample("kubernetes:core/v1:NamespacePatch", {"metadata": {"name": "a", "labels": {"c": "d"}}})
    ((_, props),) = _left(_space("a", b="c"), patch)
    assert props["metadata"]["labels"] == {"b": "c", "c": "d"}


# Lists.


def test_the_items_of_a_list_have_their_place_and_their_secrets() -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "stringData": {"key": "hunter2"}}]
    _, second = Sample("kubernetes:core/v1:SecretList", {"items": items}).resource().objects()
    assert (second.type, second.props.path, second.place) == ("kubernetes:core/v1:Secret", ("items", "1"), "Secret b")
    assert second.secrets.hide("hunter2 of key") == "[secret] of key"


@pytest.mark.parametrize("kind", ["Secret", "SecretList"])
def test_the_data_of_a_secret_is_hidden_as_a_whole(kind: str) -> None:
    item = {"metadata": {"name": "a"}, "stringData": {"key": "quay.io/team"}}
    props = {"items": [item]} if kind == "SecretList" else item
    (secret,) = Sample(f"kubernetes:core/v1:{kind}", props).resource().objects()
    assert secret.props.text("stringData", "key") == "quay.io/team"
    assert secret.secrets.hide("quay.io/team of team") == "[secret] of team"


def test_an_object_whose_kind_only_ends_like_a_list_is_itself() -> None:
    resource = Sample("kubernetes:example.com/v1:AllowList", {"metadata": {"name": "a"}, "spec": {}}).resource()
    assert resource.objects() == [resource]
