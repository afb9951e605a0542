"""Objects of stacks by the tables in `cases`, components in foreign programs, and registrations of a large stack."""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import pytest
from builders import GPU, Data, job, pool, server, stack, team
from components_builders import HEADER, Program, program, program_once
from object_cases import Case, cases
from pulumi.runtime.proto import resource_pb2
from repository import ROOT

from components.clouds.azure.pools import IMAGE
from components.clouds.gcp.daemons import PAUSE
from components.objects import KUBECTL_AND_SHELL
from components.tenancy import AT_ONCE
from gpu_tenancy.base.json import Json
from gpu_tenancy.engine import lean
from gpu_tenancy.engine import render as rendering
from gpu_tenancy.engine.recording import STACK_TYPE, RecordingMonitor
from gpu_tenancy.model.catalogue.pods import fabrics
from gpu_tenancy.model.names import KUBECTL
from gpu_tenancy.model.source import Source, to_config

ALL = stack(
    pools={"cpu": pool("m7i.8xlarge", 3), "a100": pool("p4de.24xlarge", 4), "l4": pool("g6.12xlarge", 16)},
    priorities={"ml-low": {"value": 1000, "description": "Experiments"}},
    metrics={"latencyP99": "p99_seconds"},
    teams={
        "ml-research": team(
            priority="ml-low",
            gpus={"a100": {"guaranteed": 8, "limit": 16}, "l4": {"guaranteed": 20}},
            containers={"max": {"gpu": 8}},
            gangs={"l4": {"guaranteed": 4}},
            lends=True,
            storage={"checkpoints": {"size": "1Gi"}},
            serving={
                "model-server": server(
                    flavor="l4", replicas={"min": 3, "max": 20}, scaleOn={"cpu": 70, "latencyP99": "100ms"}
                )
            },
            training={
                "nightly": job(flavor="a100", gpus=8, deadline="6h"),
                "gang": job(scheduler="volcano", tasks={"master": 1, "worker": 3}),
            },
        )
    },
    datasets={
        "corpus": "s3://ml-corpus/v3",
        "weights": {"bucket": "gs://ml-weights", "accelerate": {"cache": "40Gi", "flavor": "a100", "warm": True}},
    },
)

# How a program makes each component.
COMPONENTS = {
    "Caches": 'Caches("caches", made.environment, made.caches)',
    "CachedVolume": 'CachedVolume("ml-research-corpus", made.teams[0].cached[0])',
    "DatasetVolume": 'DatasetVolume("ml-research-corpus", made.teams[0].volumes[0])',
    "TeamStorage": 'TeamStorage("ml-research.checkpoints", made.teams[0].claims[0])',
    "Guards": 'Guards("guards", made.guards)',
    "TeamNamespace": 'TeamNamespace("ml-research", made.teams[0].namespace)',
    "Priorities": 'Priorities("priorities", made.priorities)',
    "Queues": 'Queues("queues", made.queues)',
    "ModelServer": 'ModelServer("ml-serving-model-server", made.teams[0].servers[0])',
    "TrainingJob": 'TrainingJob("ml-research-nightly", made.teams[0].jobs[0])',
    "GangJob": 'GangJob("ml-research-gang", made.teams[0].gangs[0])',
    "Team": 'Team("ml-research", made.teams[0])',
    "Tenancy": 'Tenancy("tenancy", made, pulumi.ResourceOptions(providers=[provider]))',
}
IMPORTS = """
from components.caches import CachedVolume, Caches
from components.clouds import open_cluster
from components.guards import Guards
from components.namespace import TeamNamespace
from components.queues import Priorities, Queues
from components.serving import ModelServer
from components.storage import DatasetVolume, TeamStorage
from components.tenancy import Team, Tenancy
from components.training import GangJob, TrainingJob

provider = open_cluster("cluster", made.cluster).kubernetes
"""


def alone(kind: str, sections: Data = ALL) -> Program:
    return program_once(sections, f"{IMPORTS}\n{COMPONENTS[kind]}")


EXPECTED = {
    "Caches": {"Namespace", "ResourceQuota", "NetworkPolicy", "Dataset", "AlluxioRuntime", "DataLoad"},
    "CachedVolume": {"Dataset"},
    "Guards": {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
    "DatasetVolume": {"PersistentVolume", "PersistentVolumeClaim"},
    "TeamNamespace": {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "ServiceAccount", "LocalQueue"},
    "Priorities": {"PriorityClass", "WorkloadPriorityClass"},
    "Queues": {"ResourceFlavor", "Cohort", "ClusterQueue", "Queue"},
    "ModelServer": {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"},
    "TrainingJob": {"Job"},
    "GangJob": {"Job"},
    "TeamStorage": {"PersistentVolumeClaim"},
    "Team": {"TeamNamespace", "DatasetVolume", "CachedVolume", "TeamStorage", "ModelServer", "TrainingJob", "GangJob"},
    "Tenancy": {"Priorities", "Queues", "Team", "Guards", "Caches", "FlowControl"},
}


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_component_alone_declares_its_children(kind: str) -> None:
    rendered = alone(kind)
    assert {child.type.rpartition(":")[2] for child in rendered.children(kind)} == EXPECTED[kind]
    strays = [
        registration.name
        for registration in rendered.rendered.registrations
        if not registration.parent and registration.custom
    ]
    assert strays == ["cluster"]


def test_the_program_of_the_page_declares_a_tenancy() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert {child.name for child in program(ALL, block).children("Tenancy")} >= {"ml-research"}


@pytest.mark.parametrize("kind", [kind for kind in COMPONENTS if kind != "Tenancy"])
def test_children_are_named_after_their_component(kind: str) -> None:
    rendered = alone(kind)
    own = rendered.component(kind).name
    assert [child.name for child in rendered.children(kind) if not child.name.startswith((f"{own}-", f"{own}."))] == []


@pytest.mark.parametrize("kind", COMPONENTS)
def test_names_are_known_without_a_cluster(kind: str) -> None:
    rendered = alone(kind)
    assert rendered.objects
    assert [resource.urn for resource in rendered.objects if not resource.name or resource.unknown_paths] == []


def test_components_have_typed_attributes_to_depend_on() -> None:
    rendered = program(
        ALL,
        IMPORTS
        + """
space = TeamNamespace("space", made.teams[0].namespace)
classes = Priorities("classes", made.priorities)
shared = Queues("shared", made.queues)
server = ModelServer("server", made.teams[0].servers[0])
volume = DatasetVolume("volume", made.teams[0].volumes[0])
pulumi.export("namespace", space.namespace.metadata.name)
pulumi.export("class", classes.classes["ml-low"].value)
pulumi.export("queue", shared.cluster_queues["ml-research"].metadata["name"])
pulumi.export("gangs", list(shared.gang_queues))
pulumi.export("service", server.service.metadata.name)
pulumi.export("autoscaler", server.autoscaler is not None)
pulumi.export("claim", volume.claim.metadata.name)
""",
    )
    assert rendered.rendered.outputs == {
        "autoscaler": True,
        "claim": "corpus",
        "class": 1000,
        "gangs": ["ml-research-l4"],
        "namespace": "ml-research",
        "queue": "ml-research",
        "service": "model-server",
    }


def test_the_provider_has_the_path_of_the_kubeconfig_alone() -> None:
    sections = stack(cluster={"cloud": "existing", "kubeconfig": "/etc/kube/config", "context": "gpu"})
    rendered = program(sections, IMPORTS)
    (provider,) = rendered.rendered.registrations
    assert provider.type == "pulumi:providers:kubernetes"
    assert provider.inputs["kubeconfig"] == "/etc/kube/config"
    assert provider.inputs["context"] == "gpu"
    assert provider.inputs["clusterIdentifier"] == "cluster"


def test_the_state_has_no_path_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/home/me/config")
    (provider,) = program(stack(cluster={"cloud": "existing"}), IMPORTS).rendered.registrations
    assert not provider.inputs.get("kubeconfig")


def test_a_server_of_a_fixed_number_has_no_autoscaler() -> None:
    sections = stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": server(replicas=2)})})
    rendered = alone("ModelServer", sections)
    assert rendered.spec("Deployment")["replicas"] == 2
    assert rendered.every("HorizontalPodAutoscaler") == []


def test_the_header_reads_the_same_stack_that_the_test_wrote() -> None:
    assert "read_config" in HEADER
    assert GPU in str(alone("Queues").only("ClusterQueue").manifest)


# How the program registers the teams of a large stack: a few at a time, and without the stack of its own calls


TEAMS = 3 * AT_ONCE


class Listening(RecordingMonitor):
    """Records the order of registrations, and the frames of the program's stack at each."""

    def __init__(self, project: str, stack: str, answers: Mapping[str, Mapping[str, Json]]) -> None:
        super().__init__(project, stack, answers)
        self.order: list[str] = []
        self.frames = 0
        MONITORS.append(self)

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        self.order.append(f"{request.type.rpartition(':')[2]} {request.name}")
        if request.type != STACK_TYPE:  # it is registered before the program runs
            self.frames += request.HasField("stackTrace") and len(cast("Any", request).stackTrace.frames)
        return super().RegisterResource(request)


MONITORS: list[Listening] = []


@pytest.fixture(scope="module")
def listened() -> Listening:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rendering, "RecordingMonitor", Listening)
        patched.setattr(lean, "_supported", lambda: False)  # the SDK as it is under the engine
        teams: Data = {f"t{n}": team(gpus={"h100": {"guaranteed": 0, "limit": 1}}) for n in range(TEAMS)}
        rendering.render(ROOT, project="p", stack="s", config=to_config(Source(stack(teams=teams))))
    return MONITORS.pop()


def test_teams_are_registered_a_few_at_a_time(listened: Listening) -> None:
    last_of: dict[str, int] = {}
    starts: list[tuple[int, str]] = []
    for at, line in enumerate(listened.order):
        kind, _, name = line.partition(" ")
        if kind == "Team":
            starts.append((at, name))
        elif "-space" in name:
            last_of[name.partition("-space")[0]] = at
    assert [name for _, name in starts] == sorted(f"t{n}" for n in range(TEAMS))
    for number, (at, _) in enumerate(starts):
        whole = [name for _, name in starts[:number] if last_of[name] < at]
        assert len(whole) > number - AT_ONCE


def test_registrations_have_no_stack_of_calls(listened: Listening) -> None:
    assert listened.frames == 0
    assert not hasattr(sys, "tracebacklimit")


ANY_PROGRAM = """
import pulumi

class Made(pulumi.CustomResource):
    def __init__(self):
        super().__init__("a:b:Made", "made", {})

Made()
"""


def test_the_sdk_sends_the_stack_of_calls_by_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "RecordingMonitor", Listening)
    monkeypatch.setattr(lean, "_supported", lambda: False)
    (tmp_path / "__main__.py").write_text(ANY_PROGRAM)
    rendering.render(tmp_path, project="p", stack="s", config={})
    assert MONITORS.pop().frames > 0


# Every image that this program names has a digest, or is listed here with the reason why it has none


# Images without a digest, and why.
UNKNOWN: Final = {
    "cos-nvidia-installer:fixed": "it is part of the node image and never pulled",
    "nvcr.io/nvidia/mellanox/doca-driver:doca3.4.1-26.04-1.1.0.0-1": (
        "the Network Operator appends the operating system and architecture of each node to the tag"
    ),
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.1": "in no public file",
    "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-arm64:v1.1.0": "in no public file",
}

_IMAGE: Final = re.compile(r"(?<![\w./@-])[a-z0-9][\w.-]*(?:/[\w.-]+)*:(?:v?\d[\w.-]*|fixed)(?:@sha256:[0-9a-f]{64})?")
_DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}$")


def of_fabrics() -> Iterator[str]:
    for row in fabrics().values():
        # pyrefly: ignore[invalid-yield]
        yield from (image for image in (row.injector, row.daemon and row.daemon.image) if image)
        if row.installer:
            yield from (
                image for image in (row.installer.image, row.installer.node_image, row.installer.arm64) if image
            )
        for image in (row.driver, row.plugin):
            if image:
                mark = "@" if image.version.startswith("sha256:") else ":"
                yield f"{image.repository}/{image.image}{mark}{image.version}"


NAMED: Final = {KUBECTL, KUBECTL_AND_SHELL, IMAGE, str(PAUSE.get("image")), "cos-nvidia-installer:fixed", *of_fabrics()}


@pytest.mark.parametrize("image", sorted(NAMED))
def test_an_image_has_a_digest_or_a_reason(image: str) -> None:
    assert bool(_DIGEST.search(image)) != (image in UNKNOWN)


def test_no_image_is_listed_that_is_not_used() -> None:
    assert set(UNKNOWN) <= NAMED


def test_components_name_no_other_image() -> None:
    """Literals in the source that look like an image: a registry or `fixed`, and a tag."""
    found = {
        image
        for file in (*(ROOT / "components").rglob("*.py"), ROOT / "gpu_tenancy" / "model" / "names.py")
        for image in _IMAGE.findall(re.sub(r'"\s*\n\s*"', "", file.read_text(encoding="utf-8")))
        if ("." in image.partition("/")[0] and "/" in image) or image.endswith(":fixed")
    }
    assert found == {KUBECTL, KUBECTL_AND_SHELL, IMAGE, str(PAUSE.get("image")), "cos-nvidia-installer:fixed"}


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases"))
def test_objects_of_a_stack(case: Case) -> None:
    case.verify()
