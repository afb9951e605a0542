"""Each component used alone by another program, as its docstring shows."""

import inspect
import re

import pytest
from builders import GPU, Data, job, pool, server, stack, team
from components_builders import HEADER, Program, program
from repository import ROOT

from components import caches, guards, namespace, queues, serving, storage, tenancy, training

ALL = stack(
    pools={"cpu": pool("m7i.8xlarge", 3), "a100": pool("p4de.24xlarge", 4), "l4": pool("g6.12xlarge", 16)},
    priorities={"ml-low": {"value": 1000, "preempts": False, "description": "Experiments"}},
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
        "weights": {
            "bucket": "gs://ml-weights",
            "accelerate": {"cache": "40Gi", "flavor": "a100", "warm": True},
        },
    },
)

COMPONENTS = {
    "Caches": caches,
    "CachedVolume": caches,
    "DatasetVolume": storage,
    "TeamStorage": storage,
    "Guards": guards,
    "TeamNamespace": namespace,
    "Priorities": queues,
    "Queues": queues,
    "ModelServer": serving,
    "TrainingJob": training,
    "GangJob": training,
    "Team": tenancy,
    "Tenancy": tenancy,
}
IMPORTS = """
from components.clouds import open_cluster
from gpu_tenancy.model.plan import PriorityPlan

provider = open_cluster("cluster", made.cluster).kubernetes
plan, stack = (lambda _: made), None
""" + "\n".join(f"from {module.__name__} import {kind}" for kind, module in COMPONENTS.items())


def example_of(kind: str) -> str:
    """The example of a component's docstring."""
    text = inspect.getdoc(getattr(COMPONENTS[kind], kind)) or ""
    return "\n".join(re.findall(r">>> (.*)", text))


def alone(kind: str, sections: Data = ALL) -> Program:
    return program(sections, f"{IMPORTS}\n{example_of(kind)}")


EXPECTED = {
    "Caches": {"Namespace", "ResourceQuota", "NetworkPolicy", "Dataset", "AlluxioRuntime", "DataLoad"},
    "CachedVolume": {"Dataset"},
    "Guards": {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
    "DatasetVolume": {"PersistentVolume", "PersistentVolumeClaim"},
    "TeamNamespace": {
        "Namespace",
        "ResourceQuota",
        "LimitRange",
        "NetworkPolicy",
        "ServiceAccount",
        "LocalQueue",
    },
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
def test_the_docstrings_example_runs_and_declares_its_children_and_nothing_else(kind: str) -> None:
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


def test_a_component_has_typed_attributes_that_others_can_depend_on() -> None:
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


def test_the_provider_has_the_kubeconfigs_path_and_never_its_content() -> None:
    sections = stack(cluster={"cloud": "existing", "kubeconfig": "/etc/kube/config", "context": "gpu"})
    rendered = program(sections, IMPORTS)
    (provider,) = rendered.rendered.registrations
    assert provider.type == "pulumi:providers:kubernetes"
    assert provider.inputs["kubeconfig"] == "/etc/kube/config"
    assert provider.inputs["context"] == "gpu"
    assert provider.inputs["clusterIdentifier"] == "cluster"


def test_a_server_of_a_fixed_number_has_no_autoscaler() -> None:
    sections = stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, serving={"s": server(replicas=2)})})
    rendered = alone("ModelServer", sections)
    assert rendered.spec("Deployment")["replicas"] == 2
    assert rendered.every("HorizontalPodAutoscaler") == []


def test_the_header_reads_the_same_stack_that_the_test_wrote() -> None:
    assert "read_config" in HEADER
    assert GPU in str(alone("Queues").only("ClusterQueue").manifest)
