"""`tenancy cluster adopt --recorded`: clusters and pools of three clouds as their own commands describe them."""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import azure.mgmt.containerservice.models as azure_models
import botocore.session as botocore_session
import pytest
import yaml
from google.cloud.container_v1 import types as google_types
from google.protobuf.json_format import ParseDict
from repository import ROOT
from typer.testing import CliRunner

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.cli.main import app
from gpu_tenancy.engine.checks import adoption_problems, importable
from gpu_tenancy.engine.render import Rendered, render
from gpu_tenancy.inspect.adopt.recordings import Recording, read_recording
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source, to_config
from gpu_tenancy.review.adopted import blocking, lines, written
from gpu_tenancy.review.adopting import Adopted, adopt_recorded
from gpu_tenancy.review.recorded import recorded_types
from gpu_tenancy.review.replacements import cloud_types

Data = dict[str, Any]
RECORDINGS: Final = Path(__file__).parent / "recordings"
CLOUDS: Final = ("eks", "gke", "aks")
BOTOCORE: Final[Any] = botocore_session
AZURE: Final[Any] = azure_models
GOOGLE: Final[Any] = google_types
OF_COMMANDS: Final = {"typePropertiesType"}
"""Fields that only the Azure CLI prints, for one that collides with the type of the resource."""


@cache
def recording(cloud: str) -> Recording:
    return read_recording(RECORDINGS / cloud)


@cache
def adopted(cloud: str) -> Adopted:
    return adopt_recorded(recording(cloud), "prod", ROOT)


def documents(cloud: str) -> Iterator[Data]:
    for file in sorted((RECORDINGS / cloud).glob("*.json")):
        value = json.loads(file.read_text(encoding="utf-8"))
        yield from value if isinstance(value, list) else [value]


def effects(cloud: str, resource: str, effect: str) -> set[str]:
    return {each.field for each in adopted(cloud).cloud if (each.resource, each.effect) == (resource, effect)}


# The recordings are the clouds' own


def test_eks_prints_such_fields() -> None:
    session = BOTOCORE.get_session()
    for document in documents("eks"):
        operation, service = {
            "cluster": ("DescribeCluster", "eks"),
            "nodegroup": ("DescribeNodegroup", "eks"),
            "Subnets": ("DescribeSubnets", "ec2"),
            "LaunchTemplateVersions": ("DescribeLaunchTemplateVersions", "ec2"),
        }[next(iter(document))]
        shape = session.get_service_model(service).operation_model(operation).output_shape
        assert list(unknown(document, shape)) == []


def unknown(value: Any, shape: Any, place: str = "") -> Iterator[str]:
    if shape.type_name == "structure":
        for key, inner in value.items():
            if key in shape.members:
                yield from unknown(inner, shape.members[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif shape.type_name == "list":
        for inner in value:
            yield from unknown(inner, shape.member, place)


def test_gke_prints_such_fields() -> None:
    for document in documents("gke"):
        message: Any = GOOGLE.Cluster
        ParseDict(document, message.pb(message()))


def test_the_azure_cli_prints_such_fields() -> None:
    """It prints the attributes of the SDK's models in camelCase."""
    for document in documents("aks"):
        model = AZURE.ManagedCluster if document["type"].endswith("ManagedClusters") else AZURE.AgentPool
        properties = {"ManagedCluster": AZURE.ManagedClusterProperties, "AgentPool": None}[model.__name__]
        known = attributes(model) | (
            attributes(properties) if properties else attributes(AZURE.ManagedClusterAgentPoolProfileProperties)
        )
        assert {*document} - OF_COMMANDS <= known


def attributes(model: Any) -> set[str]:
    names = {name for one in model.__mro__ for name in getattr(one, "__annotations__", {})}
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), name) for name in names}


# The stack


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_file_is_a_stack_with_the_same_resources(cloud: str) -> None:
    found = adopted(cloud)
    assert found.problems == ()
    config = yaml.safe_load(written(found))["config"]
    sections = {key.partition(":")[2]: value for key, value in config.items()}
    source = Source(sections)
    rendered = rendered_from(sections)
    assert list(adoption_problems(source, load(source), rendered)) == []
    imported = {one.name: one for one in rendered.registrations if one.import_id}
    assert {f"{name}={one.import_id}" for name, one in imported.items()} == {*found.imports}
    assert all(one.protect for one in imported.values())


def rendered_from(sections: Data) -> Rendered:
    return render(ROOT, project="p", stack="s", config=to_config(Source(sections)))


def test_pools_are_written_from_what_the_clouds_say() -> None:
    assert adopted("eks").sections["pools"] == {
        "cpu": {"machine": "m7i.8xlarge", "nodes": 2, "disk": {"size": "80Gi"}},
        "h100": {
            "machine": "p5.48xlarge", "nodes": {"min": 2, "max": 4}, "disk": {"size": "300Gi"},
            "labels": {"team": "ml"},
        },
    }  # fmt: skip
    assert adopted("gke").sections["pools"]["a100"] == {
        "machine": "a2-highgpu-8g", "nodes": {"min": 2, "max": 4}, "zones": ["us-central1-a"], "labels": {"team": "ml"},
    }  # fmt: skip
    # GKE counts nodes in each zone, a stack those of all.
    assert adopted("gke").sections["pools"]["batch"]["nodes"] == {"min": 0, "max": 6}
    assert adopted("aks").sections["pools"]["mig"] == {
        "machine": "Standard_NC96ads_A100_v4", "nodes": 1, "sharing": {"mig": {"profile": "1g.10gb"}},
        "disk": {"size": "512Gi"}, "taints": [{"key": "sku", "value": "gpu", "effect": "NoSchedule"}],
    }  # fmt: skip
    assert any("pool system: system pool of AKS" in text for text in adopted("aks").left)


def test_import_ids_have_the_forms_of_the_registry() -> None:
    aks = "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/ml/providers/Microsoft.ContainerService"
    assert adopted("eks").imports == [
        "cluster-pool-cpu-group=prod:cpu",
        "cluster-pool-h100-group=prod:h100",
        "cluster-pool-h100-template=lt-0123456789abcdef0",
    ]
    assert adopted("gke").imports[0] == "cluster-a100=ml-prod/us-central1/prod/a100"
    assert adopted("aks").imports[0] == f"cluster-a100={aks}/managedClusters/prod/agentPools/a100"


@pytest.mark.parametrize(
    ("module", "form"),
    [
        ("pulumi_aws/eks/node_group.py", r"aws:eks/nodeGroup:NodeGroup \w+ [\w-]+:[\w-]+\n"),
        ("pulumi_aws/eks/cluster.py", r"aws:eks/cluster:Cluster \w+ [\w-]+\n"),
        ("pulumi_aws/ec2/launch_template.py", r"aws:ec2/launchTemplate:LaunchTemplate \w+ lt-\w+\n"),
        ("pulumi_aws/iam/role.py", r"aws:iam/role:Role \w+ \w+\n"),
        ("pulumi_gcp/container/cluster.py", r"default projects/\S+/locations/\S+/clusters/\S+\n"),
        ("pulumi_gcp/container/node_pool.py", r"default \S+project_id\S+/\S+location\S+/\S+cluster_id\S+/\S+\n"),
    ],
)
def test_the_providers_document_these_forms(module: str, form: str) -> None:
    """azure-native imports by resource ID: its packages have no such section."""
    package, _, path = module.partition("/")
    (folder,) = getattr(find_spec(package), "submodule_search_locations", [])
    assert re.search(f"pulumi import [^\n]*{form}", (Path(folder) / path).read_text(encoding="utf-8"))


# What would change


def test_a_group_keeps_its_launch_template_and_one_without_would_be_replaced() -> None:
    assert effects("eks", "pool h100", "replaced") == effects("eks", "pool h100", "nodes restart") == set()
    assert effects("eks", "pool cpu", "replaced") == {"launchTemplate.id"}
    assert blocking(adopted("eks")) == ["pool cpu"]


def test_what_gke_and_aks_set_only_at_creation_blocks() -> None:
    assert effects("gke", "pool a100", "replaced") == effects("gke", "pool a100", "nodes restart") == set()
    assert {"nodeConfig.preemptible", "nodeConfig.shieldedInstanceConfig.enableSecureBoot"} <= effects(
        "gke", "pool batch", "replaced"
    )
    assert "nodeConfig.diskType" in effects("gke", "pool batch", "nodes restart")
    assert effects("aks", "pool a100", "replaced") == {"enableEncryptionAtHost"}
    assert effects("aks", "pool mig", "replaced") == {"osDiskType"}
    assert "osSKU" in effects("aks", "pool mig", "nodes restart")


def test_each_change_is_one_line() -> None:
    shown = list(lines(adopted("aks")))
    assert shown[0] == "✗ replaced: pool a100: enableEncryptionAtHost: false → true"
    assert "updated: pool a100: upgradeSettings.maxSurge: 10% → 0" in shown
    assert "updated: pool a100, pool mig: tags.managed-by: not set → gpu-tenancy" in shown
    assert any(text.startswith("Blocked: a deployment would replace pool a100, pool mig") for text in shown)


def test_every_row_is_of_a_type_and_of_inputs_that_the_replacements_have() -> None:
    for token, row in recorded_types().items():
        assert token in cloud_types()
        assert row.named in cloud_types()[token].replaces or row.kept
    pools = [token for token in recorded_types() if cloud_types()[token].what == "pool"]
    for token in pools:
        for name in recorded_types()[token].restarts:
            assert not cloud_types()[token].forces([name]), name


# Import


def test_only_named_resources_are_imported_and_a_template_keeps_what_it_has() -> None:
    sections = deepcopy(adopted("eks").sections)
    rendered = rendered_from(sections)
    template = next(one for one in rendered.registrations if one.name == "cluster-pool-h100-template")
    changed = {*template.inputs} - {*template.ignore_changes}
    assert changed == set()
    sections |= {
        "environment": "dev",
        "cluster": {**sections["cluster"], "adopt": ["cluster-pool-h100-group=prod:h100"]},
    }
    by_name = {one.name: one for one in rendered_from(sections).registrations if importable(one)}
    assert {name for name, one in by_name.items() if one.import_id} == {"cluster-pool-h100-group"}
    assert not by_name["cluster-pool-cpu-group"].protect


def test_a_resource_that_the_program_does_not_have_is_an_error() -> None:
    sections = deepcopy(adopted("gke").sections)
    sections["cluster"]["adopt"] = ["cluster-a10=ml-prod/us-central1/prod/a100"]
    source = Source(sections)
    (problem,) = adoption_problems(source, load(source), rendered_from(sections))
    assert "is no resource of the cloud that this stack can adopt; remove it, or correct it: did you mean" in str(
        problem
    )


# The command


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cluster", "adopt", "--project", str(ROOT), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output + result.stderr


def test_the_command_writes_compares_and_blocks(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.prod.yaml"
    code, shown = run("--recorded", str(RECORDINGS / "eks"), "--out", str(file))
    assert (code, "Blocked" in shown) == (1, True)
    assert "cluster-pool-h100-group=prod:h100" in file.read_text(encoding="utf-8")
    code, shown = run("--recorded", str(RECORDINGS / "eks"), "--stack", "dev-aws")
    assert "cluster.name: ml-dev is not the cluster of the recording, prod" in shown.replace("\n", " ")
    assert "nothing to write or to compare" in run()[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "no file of a cluster"),
        ({"a.json": "{"}, "not JSON"),
        ({"a.json": '{"cluster": {"name": "a", "arn": "arn:aws:eks:us-east-1:1:cluster/a"}}',
          "b.json": '{"cluster": {"name": "b", "arn": "arn:aws:eks:us-east-1:1:cluster/b"}}'}, "2 clusters"),
    ],
)  # fmt: skip
def test_a_folder_that_is_not_one_cluster_is_an_error(tmp_path: Path, content: Mapping[str, str], message: str) -> None:
    for name, text in content.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConsoleError, match=message):
        read_recording(tmp_path)
