"""Pods found in objects of operators: whole pods, parts of pods, containers; and similar fields."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from policy_builders import UNKNOWN, Sample

from rule_engine import Resource, UnknownValueError, View
from workload_rules import pods, shapes
from workload_rules.shapes import Found

_TABLES: Final[Any] = yaml.safe_load(Path(__file__).with_name("pods.yaml").read_text(encoding="utf-8"))
FOUND: Final[dict[str, str | list[str]]] = _TABLES["found"]
PARTS: Final[list[tuple[str, str, str | list[str]]]] = [
    (kind, text, expected) for kind, rows in _TABLES["parts"].items() for text, expected in rows.items()
]


def shown(found: Found) -> str:
    """Form, path, place in messages, path of the metadata if there are some, and the field with resources."""
    meta = f" meta {'.'.join(found.meta.path)}" if found.meta.value is not None else ""
    resources = f" {found.resources}" if found.resources != "resources" else ""
    return f"{found.form} {'.'.join(found.view.path)} as {found.label or 'all'}{meta}{resources}"


def found_in(text: str) -> list[str]:
    props = Sample("kubernetes:example.com/v1:App", yaml.safe_load(text.replace("UNKNOWN", UNKNOWN))).resource().props
    return [shown(found) for found in shapes.find_pods(props)]


@pytest.mark.parametrize("text", FOUND)
def test_what_is_found_in_an_object_of_an_operators_kind(text: str) -> None:
    expected = FOUND[text]
    assert found_in(text) == ([expected] if isinstance(expected, str) else expected)


_FIELDS: Final = {
    "pod": (
        "affinity containers dnsConfig ephemeralContainers hostAliases hostIPC hostNetwork hostPID imagePullSecrets"
        " initContainers nodeSelector readinessGates resourceClaims schedulingGates securityContext tolerations"
        " topologySpreadConstraints volumes"
    ),
    "container": (
        "env envFrom lifecycle livenessProbe ports readinessProbe securityContext startupProbe volumeDevices"
        " volumeMounts"
    ),
}


@pytest.mark.parametrize(
    ("form", "field"), [(form, field) for form, fields in _FIELDS.items() for field in fields.split()]
)
def test_fields_of_pods_and_containers_contain_no_parts(form: str, field: str) -> None:
    """Otherwise a Job with a label selector of the right name would be reported by mistake."""
    inner: dict[str, Any] = {"b": {"env": [{"name": "c"}]}}
    outer: dict[str, Any] = {"containers": [{"image": "x"}]} if form == "pod" else {"gpu": {"quantity": 1}}
    given = [*outer["containers"], inner] if field == "containers" else inner
    assert [found.form for found in shapes.find_pods(View({"a": {**outer, field: given}}))] == [form]
    assert [found.form for found in shapes.find_pods(View({"a": {**outer, f"{field}s": inner}}))] == [form, "container"]


def test_strings_exclude_metadata_and_status_of_the_object() -> None:
    text = "{kind: a, metadata: {name: b}, spec: {c: [d, 7, {metadata: {name: e}, status: f}]}, status: {g: h}}"
    assert [(".".join(view.path), view.value) for view in shapes.strings(View(yaml.safe_load(text)))] == [
        ("kind", "a"),
        ("spec.c.0", "d"),
        ("spec.c.2.metadata.name", "e"),
        ("spec.c.2.status", "f"),
    ]


# Pods by the table of kinds, and what is merged with them.


def with_pods(kind: str, text: str) -> Resource:
    props = yaml.safe_load(text.replace("UNKNOWN", UNKNOWN))
    return Sample(f"kubernetes:{kind}", {"metadata": {"name": "it"}, **props}).resource()


@pytest.mark.parametrize(("kind", "text", "expected"), PARTS)
def test_what_is_found_in_an_object_of_a_known_kind(kind: str, text: str, expected: str | list[str]) -> None:
    found = [
        ", ".join(
            (
                f"{pod.form} {'.'.join(pod.spec.path)} as {pod.label or 'all'}",
                *(container.view.path[-1] for container in pod.containers),
            )
        )
        for pod in with_pods(kind, text).parts(pods.POD_PARTS)
    ]
    assert found == ([expected] if isinstance(expected, str) else expected)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("batch.volcano.sh/v1alpha1:Job", "{spec: {tasks: [UNKNOWN]}}"),
        ("kubeflow.org/v1:PyTorchJob", "{spec: {pytorchReplicaSpecs: {Worker: UNKNOWN}}}"),
    ],
)
def test_an_unknown_part_of_the_path_to_a_pod_is_reported(kind: str, text: str) -> None:
    with pytest.raises(UnknownValueError):
        with_pods(kind, text).parts(pods.POD_PARTS)


def test_template_has_the_names_around_it() -> None:
    view = View({"a": [{"name": "b", "c": {"d": {"e": 1}, "f": 2}}, {"c": [{"name": "g"}]}]})
    assert [names for names, _ in pods.views_at(view, "a.*.c.*")] == [("b", "d"), ("1", "g")]


GPUS: Final = {
    "{a: {aResources: {limits: {nvidia.com/gpu: 1}}, bResources: {limits: {nvidia.com/gpu: 2}}}}": [1, 2],
    "{a: {gpu: {name: nvidia.com/gpu, quantity: 3}}}": [3],
    "{a: {gpu: {name: nvidia.com/gpu}, resources: {limits: {nvidia.com/gpu: 4}}}}": [4],
    "{a: {containers: [{gpu: {name: nvidia.com/gpu, quantity: 5}}]}}": [0],
}


@pytest.mark.parametrize("text", GPUS)
def test_the_gpus_of_parts_of_an_operators_object_are_counted(text: str) -> None:
    parts = with_pods("example.com/v1:App", text).parts(pods.POD_PARTS)
    assert [pod.gpus(pods.Gpus.model_validate({})).get("nvidia.com/gpu", 0) for pod in parts] == GPUS[text]


def test_rules_count_gpus_by_their_own_settings() -> None:
    (pod,) = with_pods(
        "core/v1:Pod", "{spec: {containers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 2}}}]}}"
    ).parts(pods.PODS)
    assert (pod.gpus(pods.Gpus.model_validate({})), pod.gpus(pods.Gpus(gpus=["nvidia.com/gpu"]))) == (
        {"nvidia.com/mig-1g.10gb": 2},
        {},
    )


def test_a_claim_is_where_the_pod_names_it() -> None:
    (pod,) = with_pods("core/v1:Pod", "{spec: {resourceClaims: [{name: a}, {resourceClaimName: b}]}}").parts(pods.PODS)
    assert pod.claims == [pods.Claim("ResourceClaim", "b", ("spec", "resourceClaims", "1", "resourceClaimName"))]
