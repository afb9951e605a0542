"""Pods found in objects of operators: whole pods, parts of pods, containers; and similar fields."""

from typing import Any, Final

import pytest
import yaml
from policy_builders import UNKNOWN, Sample

from rule_engine import Resource, UnknownValueError, View
from workload_rules import pods, shapes
from workload_rules.shapes import Found

_A_POD: Final = "containers: [{image: x}]"


def shown(found: Found) -> str:
    """Form, path, place in messages, path of the metadata if there are some, and the field with resources."""
    meta = f" meta {'.'.join(found.meta.path)}" if found.meta.value is not None else ""
    resources = f" {found.resources}" if found.resources != "resources" else ""
    return f"{found.form} {'.'.join(found.view.path)} as {found.label or 'all'}{meta}{resources}"


def found_in(text: str) -> list[str]:
    props = Sample("kubernetes:example.com/v1:App", yaml.safe_load(text.replace("UNKNOWN", UNKNOWN))).resource().props
    return [shown(found) for found in shapes.find_pods(props)]


FOUND: Final = {
    # Whole pods.
    f"{{spec: {{{_A_POD}}}}}": "pod spec as all",
    "{spec: {a: {containers: [7, {image: x}]}}}": "pod spec.a as spec.a",
    "{a: {containers: UNKNOWN}}": "pod a as a",
    "{a: {containers: [{env: UNKNOWN, resources: UNKNOWN}]}}": "pod a as a",
    f"{{a: {{metadata: {{name: b}}, spec: {{{_A_POD}}}}}}}": "pod a.spec as a meta a.metadata",
    f"{{a: {{metadata: {{name: b}}, {_A_POD}}}}}": "pod a as a meta a.metadata",
    f"{{a: [{{name: b, c: {{{_A_POD}}}}}, {{c: {{{_A_POD}}}}}]}}": ("pod a.0.c as a.b.c", "pod a.1.c as a.1.c"),
    "{a: {containers: [{image: x}], resources: {limits: {cpu: 1}}}}": "pod a as a",
    # Parts of pods.
    "{a: {hostPID: true}}": "part a as a",
    "{a: {hostIPC: false}}": "part a as a",
    "{hostNetwork: true}": "part  as all",
    "{a: {metadata: {name: b}, spec: {hostPID: true}}}": "part a.spec as a meta a.metadata",
    "{a: {initContainers: [{image: x}]}}": "part a as a",
    "{a: {ephemeralContainers: [{image: x}]}}": "part a as a",
    "{a: {containers: [{env: prod}]}}": "part a as a",
    "{a: {containers: [{envFrom: {}}]}}": "part a as a",
    "{a: {containers: [{resources: 3}]}}": "part a as a",
    "{a: {containers: [{securityContext: none}]}}": "part a as a",
    "{a: {containers: [{volumeMounts: {}}]}}": "part a as a",
    "{a: {volumes: [7, {name: b}]}}": "part a as a",
    "{a: {tolerations: [{key: b}]}}": "part a as a",
    "{a: {resourceClaims: [{name: b}]}}": "part a as a",
    "{a: {priorityClassName: high}}": "part a as a",
    "{a: {terminationGracePeriodSeconds: 7}}": "part a as a",
    "{a: {affinity: {podAffinity: {}}}}": "part a as a",
    "{a: {affinity: {podAntiAffinity: {}}}}": "part a as a",
    "{a: {podSecurityContext: {sysctls: []}}}": "part a as a",
    "{a: {podSecurityContext: {windowsOptions: {}}}}": "part a as a",
    "{a: {podSecurityContext: {seccompProfile: {}}}}": "part a as a",
    "{a: {securityContext: {sysctls: []}}}": "part a as a",
    "{a: {securityContext: {windowsOptions: {}}}}": "part a as a",
    # Containers outside of pods.
    "{a: {container: {image: x}}}": "container a.container as a.container",
    "{a: {script: {image: x}}}": "container a.script as a.script",
    "{a: {stepTemplate: {image: x}}}": "container a.stepTemplate as a.stepTemplate",
    "{sidecars: [{name: b, image: x}]}": "container sidecars.0 as sidecars.b",
    "{steps: [{image: x, metadata: {name: b}}]}": "container steps.0 as steps.0 meta steps.0.metadata",
    "{a: {env: [7, {name: b}]}}": "container a as a",
    "{a: {envFrom: [{secretRef: {name: b}}]}}": "container a as a",
    "{a: {volumeDevices: [{name: b}]}}": "container a as a",
    "{a: {gpu: {quantity: 1}}}": "container a as a",
    "{a: {securityContext: {privileged: true}}}": "container a as a",
    "{a: {securityContext: {allowPrivilegeEscalation: true}}}": "container a as a",
    "{a: {securityContext: {capabilities: {add: []}}}}": "container a as a",
    "{a: {securityContext: {procMount: Unmasked}}}": "container a as a",
    "{a: {resources: {limits: {cpu: 1}}}}": "container a as a",
    "{a: {workerResources: {requests: {cpu: 1}}}}": "container a as a workerResources",
    "{a: {resources: {limits: UNKNOWN}}}": "container a as a",
    "{a: {aResources: {limits: {}}, bResources: {limits: {}}}}": (
        "container a as a aResources",
        "container a as a.bResources bResources",
    ),
    # In fields of pods and of containers, whole pods only.
    f"{{a: {{{_A_POD}, nodeSelector: {{b: {{c: {{{_A_POD}}}, env: [{{name: d}}]}}}}}}}}": (
        "pod a as a",
        "pod a.nodeSelector.b.c as a.nodeSelector.b.c",
    ),
    # Nothing.
    "{a: {containers: [b], env: prod, resources: [x], volumes: 3, hostNetworks: true}}": (),
    "{a: {affinity: {nodeAffinity: {}}, securityContext: {runAsUser: 1}, podSecurityContext: {fsGroup: 1}}}": (),
    "{a: {quota: {limits: {cpu: 1}}, resources: {cpu: 1}, gpu: {name: b}}}": (),
    "{steps: {image: x}, sidecars: {image: x}}": (),
    "{status: {hostPID: true}, metadata: {hostPID: true}}": (),
}  # fmt: skip
"""Found parts of objects of an operator's kind."""


@pytest.mark.parametrize("text", FOUND)
def test_what_is_found_in_an_object_of_an_operators_kind(text: str) -> None:
    expected = FOUND[text]
    assert found_in(text) == ([expected] if isinstance(expected, str) else [*expected])


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

PARTS: Final = {
    ("batch/v1:Job", f"{{spec: {{template: {{spec: {{{_A_POD}}}}}}}}}"): "pod spec.template.spec as all, 0",
    ("batch/v1:JobPatch", f"{{spec: {{template: {{spec: {{{_A_POD}}}}}}}}}"): "part spec.template.spec as all, 0",
    ("batch/v1:JobPatch", "{spec: {template: {metadata: {labels: {a: b}}}}}"): "part spec.template.spec as all",
    ("batch/v1:Job", "{spec: {template: {metadata: {labels: {a: b}}}}}"): (),
    ("batch.volcano.sh/v1alpha1:Job", f"{{spec: {{tasks: [{{template: {{spec: {{{_A_POD}}}}}}}]}}}}"): (
        "pod spec.tasks.0.template.spec as 0, 0"
    ),
    (
        "batch/v1:Job",
        "{spec: {template: {spec: {containers: [UNKNOWN, 7, {}]}}}}",
    ): "pod spec.template.spec as all, 0, 2",
    ("apps/v1:StatefulSet", "{spec: {volumeClaimTemplates: [{spec: {resources: {requests: {storage: 1Ti}}}}]}}"): (),
    ("ray.io/v1:RayCluster", f"{{spec: {{workerGroupSpecs: [{{groupName: a, template: {{spec: {{{_A_POD}}}}}}}]}}}}"): (
        "pod spec.workerGroupSpecs.0.template.spec as a, 0"
    ),
    ("ray.io/v1:RayCluster", f"{{spec: {{headGroupSpec: {{template: {{spec: {{{_A_POD}}}}}}}, a: {{{_A_POD}}}}}}}"): (
        "pod spec.headGroupSpec.template.spec as all, 0",
        "part spec.a as spec.a, 0",
    ),
    (
        "trainer.kubeflow.org/v1alpha1:TrainJob",
        "{spec: {trainer: {numNodes: 2}}}",
    ): "trainer spec.trainer as all, trainer",
    ("trainer.kubeflow.org/v1alpha1:TrainJob", "{spec: {runtimeRef: {name: a}}}"): (),
    ("example.com/v1:App", f"{{spec: {{{_A_POD}}}}}"): "pod spec as all, 0",
    ("core/v1:ConfigMap", f"{{data: {{{_A_POD}}}}}"): (),
}


def with_pods(kind: str, text: str) -> Resource:
    props = yaml.safe_load(text.replace("UNKNOWN", UNKNOWN))
    return Sample(f"kubernetes:{kind}", {"metadata": {"name": "it"}, **props}).resource()


@pytest.mark.parametrize(("kind", "text"), PARTS)
def test_what_is_found_in_an_object_of_a_known_kind(kind: str, text: str) -> None:
    resource = with_pods(kind, text)
    found = [
        ", ".join(
            (
                f"{pod.form} {'.'.join(pod.spec.path)} as {pod.label or 'all'}",
                *(container.view.path[-1] for container in pod.containers),
            )
        )
        for pod in resource.parts(pods.POD_PARTS)
    ]
    expected = PARTS[kind, text]
    assert found == ([expected] if isinstance(expected, str) else [*expected])


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
