import io
from dataclasses import replace

import pytest
from offline_builders import NAMESPACE, QUEUE, QUOTA, Rendering, component, manifest, stack_of
from rich.console import Console

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.details import details, tree
from gpu_tenancy.engine.render import Rendered

KUEUE = "kueue.x-k8s.io/v1beta2"


def shown(rendered: Rendered) -> str:
    text = io.StringIO()
    Console(width=100, file=text).print(tree(rendered))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def test_each_resource_is_under_its_parent_with_a_count() -> None:
    team = component("ml-research")
    other = component("alpha")
    rendered = stack_of(team, other, *(replace(one, parent=team.urn) for one in (NAMESPACE, QUOTA, QUEUE)))
    assert shown(rendered) == (
        "gpu-tenancy/dev  3 resources\n"
        "├── Team alpha  0 resources\n"
        "└── Team ml-research  3 resources\n"
        "    ├── ClusterQueue ml-research\n"
        "    ├── Namespace ml-research\n"
        "    └── ResourceQuota gpus  requests.nvidia.com/gpu 36\n"
    )


def test_providers_and_what_is_only_read_are_left_out(rendering: Rendering) -> None:
    rendered = rendering("""
    provider = k8s.Provider("cluster", kubeconfig="{}")
    k8s.core.v1.Namespace.get("read", "kube-system")
    k8s.core.v1.Namespace("a", metadata={"name": "child"}, opts=pulumi.ResourceOptions(parent=provider))
    """)
    assert len(rendered.registrations) == 3
    assert shown(rendered) == "gpu-tenancy/dev  1 resource\n└── Namespace child\n"


def test_secrets_are_not_shown(rendering: Rendering) -> None:
    rendered = rendering("""
    hidden = pulumi.Output.secret("hunter2")
    k8s.core.v1.ResourceQuota("q", metadata={"name": "q", "namespace": hidden}, spec={"hard": {"pods": hidden}})
    k8s.core.v1.Namespace("a", metadata={"name": hidden})
    """)
    text = shown(rendered)
    assert "ResourceQuota q  pods [secret]" in text
    assert "Namespace (a: no name)" in text
    assert "hunter2" not in text


def test_a_line_never_passes_the_width_of_the_terminal() -> None:
    hard: dict[str, Json] = {f"requests.example.com/resource-{number}": "1" for number in range(20)}
    long = replace(QUOTA, inputs=manifest("ResourceQuota", "q" * 60, "ml", spec={"hard": hard}))
    lines = shown(stack_of(long)).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 100
    assert lines[1].endswith("…")


def quota(flavor: str, resource: str, nominal: Json, borrowing: Json = None) -> dict[str, Json]:
    amounts: dict[str, Json] = {"name": resource, "nominalQuota": nominal}
    if borrowing is not None:
        amounts["borrowingLimit"] = borrowing
    return {"flavors": [{"name": flavor, "resources": [amounts]}]}


POD: dict[str, Json] = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 2}}}]}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            manifest(
                "ClusterQueue",
                "q",
                api=KUEUE,
                spec={"resourceGroups": [quota("a100", "nvidia.com/gpu", 8, 24), quota("cpu", "cpu", 4)]},
            ),
            "a100 8 → 32",
        ),
        (
            manifest("ClusterQueue", "q", api=KUEUE, spec={"resourceGroups": [quota("cpu", "memory", "1Gi", "2Gi")]}),
            "cpu memory 1Gi → 3Gi",
        ),
        (
            manifest(
                "Cohort",
                "c",
                api=KUEUE,
                spec={"parentName": "org", "resourceGroups": [quota("h100", "nvidia.com/gpu", 8)]},
            ),
            "parent org; h100 8",
        ),
        (manifest("LocalQueue", "q", "ml", api=KUEUE, spec={"clusterQueue": "ml"}), "cluster queue ml"),
        (manifest("ResourceFlavor", "f", api=KUEUE, spec={"nodeLabels": {"gpu": "a100"}}), "gpu=a100"),
        (manifest("WorkloadPriorityClass", "p", api=KUEUE, value=1000), "1000"),
        (manifest("PriorityClass", "p", api="scheduling.k8s.io/v1", value=0), "0"),
        (
            manifest("ResourceQuota", "q", "ml", spec={"hard": {"pods": "5", "requests.nvidia.com/gpu": "36"}}),
            "requests.nvidia.com/gpu 36, pods 5",
        ),
        (manifest("LimitRange", "l", "ml", spec={"limits": [{"max": {"cpu": 4}}]}), "max cpu 4"),
        (
            manifest("Namespace", "ml") | {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}},
            "pod security baseline",
        ),
        (manifest("Deployment", "d", "ml", api="apps/v1", spec={"template": POD}), "nvidia.com/gpu 8"),
        (
            manifest("Job", "j", "ml", api="batch/v1", spec={"parallelism": 4, "template": POD}),
            "4 x nvidia.com/gpu 8",
        ),
        (
            manifest(
                "Job",
                "j",
                "ml",
                api="batch.volcano.sh/v1alpha1",
                spec={"tasks": [{"name": "master", "replicas": 1, "template": POD}]},
            ),
            "master 1 x nvidia.com/gpu 8",
        ),
        (
            manifest(
                "HorizontalPodAutoscaler",
                "h",
                "ml",
                api="autoscaling/v2",
                spec={"scaleTargetRef": {"name": "server"}, "minReplicas": 3, "maxReplicas": 50},
            ),
            "server 3 → 50",
        ),
        (
            manifest("PodDisruptionBudget", "p", "ml", api="policy/v1", spec={"maxUnavailable": "10%"}),
            "max unavailable 10%",
        ),
        (manifest("Queue", "q", api="scheduling.volcano.sh/v1beta1", spec={"capability": {"cpu": "4"}}), "cpu 4"),
        (manifest("ConfigMap", "c", "ml", data={"a": "b"}), ""),
    ],
)
def test_the_most_telling_fields_of_a_kind_are_shown(body: dict[str, Json], words: str) -> None:
    assert details(body) == words


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        (KUEUE, "ClusterQueue"),
        (KUEUE, "Cohort"),
        ("v1", "ResourceQuota"),
        ("v1", "LimitRange"),
        ("apps/v1", "Deployment"),
        ("batch.volcano.sh/v1alpha1", "Job"),
    ],
)
def test_an_unknown_or_misshapen_field_is_left_out_and_never_fails(api: str, kind: str) -> None:
    assert details(manifest(kind, "x", api=api, spec="[unknown]")) == ""
