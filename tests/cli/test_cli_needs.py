"""Needs of stacks: a provider for each object, and the packages of their own cloud only."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess, run
from sys import executable
from textwrap import dedent
from typing import Any, Final

import pytest
import yaml
from builders import EKS, pool, stack, team
from cli_builders import Project, tenancy
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.model.catalogue import machines, price_table
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.catalogue.preflight import needs
from gpu_tenancy.model.checks.operators import places
from gpu_tenancy.model.plan.needs import provider_of
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.source import read_file
from gpu_tenancy.model.spec.clouds.base import Provided

STACKS: Final = stack_names()
ALONE: Final = {
    "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Deployment", "FlowSchema", "Job", "LimitRange",
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "Namespace",
    "PodDisruptionBudget", "PriorityClass", "PriorityLevelConfiguration", "ResourceQuota", "Role", "RoleBinding",
    "Service", "ServiceAccount",
    "StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
# The operator of an API group; another check demands it.
SERVED: Final = {
    group: name
    for name, operator in operators().items()
    for chart in operator.charts.values()
    for group in chart.serves
}
# Kinds that a cloud's own controllers serve in each of its clusters.
OF_CLOUD: Final[Mapping[str, set[str]]] = {"gcp": {"GKENetworkParamSet", "Network"}}


def registrations(name: str) -> tuple[Registration, ...]:
    return stack_of_repository(name).rendered.registrations


def test_the_names_of_the_needs_are_the_values_of_the_key() -> None:
    # pyrefly: ignore[missing-attribute]
    assert list(needs()) == list(Provided.__args__)


@pytest.mark.parametrize("name", STACKS)
def test_each_rendered_kind_has_a_provider(name: str) -> None:
    preview = stack_of_repository(name)
    known = {kind for need in needs().values() for kind in need.kinds}
    of_cloud = OF_CLOUD.get(preview.stack.cluster.cloud, set[str]())
    for item in preview.objects:
        if operator := SERVED.get(str(item.manifest["apiVersion"]).rpartition("/")[0]):
            assert preview.stack.operators.of(operator).install != "off", operator
        else:
            assert item.kind in known | of_cloud | ALONE


@pytest.mark.parametrize("name", STACKS)
def test_provided_needs_are_registered(name: str) -> None:
    """The table names the provider of a need in a created cluster; the program must register it."""
    preview = stack_of_repository(name)
    cluster = preview.stack.cluster
    if cluster.creation is None:
        pytest.skip("the stack creates no cluster")
    tree = Tree(preview.stack)
    inputs = [(one.type, json.dumps(one.inputs, default=str)) for one in registrations(name)]
    for title, need in needs().items():
        made = need.made.get(cluster.cloud)
        if made is None or next(places(tree, title), None) is None:
            continue
        providers = [text for type_, text in inputs if type_ == made.type]
        assert any(all(part in text for part in made.inputs) for text in providers), (title, made)


@pytest.mark.parametrize("name", STACKS)
def test_the_report_of_a_stack_could_name_each_provider(name: str) -> None:
    cluster = stack_of_repository(name).stack.cluster
    for title, need in needs().items():
        provider = provider_of(stack_of_repository(name).stack, need)
        if cluster.cloud == "existing":
            assert provider is None
        elif cluster.creation is not None and cluster.cloud in need.made:
            assert provider == need.made[cluster.cloud].by, title


SDKS: Final = {name: rules.package.replace("-", "_") for name, rules in clouds().items() if rules.package}
ALL_STACKS: Final = {
    stack: read_file(ROOT / "stacks" / f"Pulumi.{stack}.yaml").sections["cluster"]["cloud"] for stack in stack_names()
}


def preview_without(stack: str, missing: list[str], *options: str) -> CompletedProcess[str]:
    """The command in a Python without these packages; prints at its end which SDKs were imported."""
    code = dedent(
        """
        import sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in MISSING:
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, Missing())
        from gpu_tenancy.cli.main import main

        try:
            main()
        finally:
            print("imported:", *sorted({name.partition(".")[0] for name in sys.modules} & SDKS), file=sys.stderr)
        """
    ).replace("MISSING", repr(set(missing) or {""}), 1)
    code = code.replace("MISSING", repr(set(missing) or {""})).replace("SDKS", repr(set(SDKS.values())))
    return run(
        [executable, "-c", code, "preview", stack, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_every_cloud_has_a_stack() -> None:
    assert set(ALL_STACKS.values()) == set(clouds())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("stack", sorted({cloud: stack for stack, cloud in ALL_STACKS.items()}.values()))
def test_preview_needs_only_the_package_of_its_cloud(stack: str, tmp_path: Path) -> None:
    own = [SDKS[ALL_STACKS[stack]]] if ALL_STACKS[stack] in SDKS else []
    done = preview_without(stack, [sdk for sdk in SDKS.values() if sdk not in own], "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].split() == ["imported:", *own]
    assert (tmp_path / "report.html").is_file()
    assert len(list((tmp_path / "objects").rglob("*.yaml"))) == len(stack_of_repository(stack).objects)


@pytest.mark.process
@pytest.mark.slow
def test_names_missing_package_and_how_to_install_it() -> None:
    done = preview_without("prod-gcp", ["pulumi_gcp"])
    assert done.returncode == 1
    assert (
        "cluster.cloud: gcp needs the package pulumi-gcp, which is not installed; run `make ready-clouds`"
    ) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
@pytest.mark.slow
def test_another_missing_module_is_not_blamed_on_the_cloud() -> None:
    done = preview_without("prod-gcp", ["pulumi_kubernetes"])
    assert done.returncode == 1
    assert "imports pulumi_kubernetes, which this Python does not have" in " ".join(done.stderr.split())
    assert "needs the package" not in done.stderr
    assert "Traceback" not in done.stderr


def test_each_extra_brings_its_clouds_package_and_no_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name: [entry.partition(">")[0] for entry in entries]
        for name, entries in project["optional-dependencies"].items()
    }
    deploy = extras.pop("deploy")
    assert extras == {name: ["gpu-tenancy[deploy]", rules.package] for name, rules in clouds().items() if rules.package}
    assert [name for name in deploy if name.startswith("pulumi")] == ["pulumi", "pulumi-kubernetes", "pulumi-policy"]
    assert not [entry for entry in project["dependencies"] if entry.startswith("pulumi")]


def test_preview_ends_with_costs_and_their_sources() -> None:
    words = tenancy("preview", "prod-gcp").output
    assert "Node pools, USD per hour" in words
    assert f"Prices: {price_table('gcp').region}" in words.replace("\n", " ")
    assert "unknown" in words  # flex-start is on no price list


def test_the_command_lists_the_machines_of_one_cloud() -> None:
    words = tenancy("catalogue", "machines", "--cloud", "azure").output
    own = {name for cloud, name in machines() if cloud == "azure"}
    assert all(name in words for name in own)
    assert "p5.48xlarge" not in words


def test_the_command_knows_no_machines_of_a_misspelt_cloud() -> None:
    result = tenancy("catalogue", "machines", "--cloud", "gpc")
    assert result.exit_code == 1
    assert "error: --cloud: unknown cloud 'gpc'; did you mean 'gcp'?" in result.output


def manifests(file: Path) -> list[dict[str, Any]]:
    return [manifest for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")) if isinstance(manifest, dict)]


def test_a_stack_with_karpenter_and_partitions_can_be_previewed(project: Project, tmp_path: Path) -> None:
    """Karpenter learns of the partitions from a NodeOverlay, which is cluster-scoped."""
    cut = pool("p4de.24xlarge", {"min": 0, "max": 2}, sharing={"mig": {"profile": "1g.10gb"}})
    teams = {"a": team(gpus={"parts": {"guaranteed": 56}})}
    project.write("partitions", stack(cluster={**EKS, "autoscaler": "karpenter"}, pools={"parts": cut}, teams=teams))
    done = tenancy("preview", "partitions", "--out", tmp_path / "out", project=project.folder)
    assert done.exit_code == 0, done.output
    overlays: list[Any] = [
        manifest
        for file in (tmp_path / "out").rglob("*.yaml")
        for manifest in manifests(file)
        if manifest.get("kind") == "NodeOverlay"
    ]
    assert [overlay["metadata"] for overlay in overlays] == [{"name": "parts"}]
    assert overlays[0]["spec"]["capacity"] == {"nvidia.com/mig-1g.10gb": "56"}
