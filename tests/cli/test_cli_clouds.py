"""Only the cloud in use is imported, installed and needed."""

import tomllib
from pathlib import Path
from subprocess import CompletedProcess, run
from sys import executable
from textwrap import dedent
from typing import Any, Final

import pytest
import yaml
from builders import pool, team
from cli_builders import Project, tenancy
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.model.catalogue import machines, price_table
from gpu_tenancy.model.catalogue.clouds import clouds
from gpu_tenancy.model.project import stack_names
from gpu_tenancy.model.source import read_file

SDKS: Final = {name: rules.package.replace("-", "_") for name, rules in clouds().items() if rules.package}
STACKS: Final = {
    stack: read_file(ROOT / "stacks" / f"Pulumi.{stack}.yaml").sections["cluster"]["cloud"] for stack in stack_names()
}


def preview_without(stack: str, missing: list[str], *options: str) -> CompletedProcess[str]:
    """The command in a Python that has none of these packages; prints at its end which SDKs were imported."""
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
    assert set(STACKS.values()) == set(clouds())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("stack", STACKS)
def test_the_preview_of_a_stack_needs_its_own_clouds_package_and_no_other(stack: str, tmp_path: Path) -> None:
    own = [SDKS[STACKS[stack]]] if STACKS[stack] in SDKS else []
    done = preview_without(stack, [sdk for sdk in SDKS.values() if sdk not in own], "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].split() == ["imported:", *own]
    assert (tmp_path / "report.html").is_file()
    assert len(list((tmp_path / "objects").rglob("*.yaml"))) == len(stack_of_repository(stack).objects)


@pytest.mark.process
@pytest.mark.slow
def test_a_package_that_is_missing_is_named_with_the_way_to_get_it() -> None:
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


def test_the_preview_ends_with_what_the_pools_cost_and_where_the_prices_come_from() -> None:
    words = tenancy("preview", "prod-gcp").output
    assert "Node pools, USD per hour" in words
    assert f"prices: {price_table('gcp').region}" in words.replace("\n", " ")
    assert "unknown" in words  # flex-start is on no price list


def test_the_command_lists_features_of_each_cloud() -> None:
    words = tenancy("catalogue", "clouds").output
    assert all(rules.title in words for rules in clouds().values())
    assert "capacity-block" in words


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
    """The objects of a YAML file."""
    return [manifest for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")) if isinstance(manifest, dict)]


def test_a_stack_with_karpenter_and_partitions_can_be_previewed(project: Project, tmp_path: Path) -> None:
    """Karpenter learns of the partitions from a NodeOverlay, which is cluster-scoped."""
    project.write(
        "partitions",
        {
            "cluster": {
                "cloud": "aws",
                "name": "ml",
                "region": "eu-central-1",
                "subnets": {"eu-central-1a": "subnet-0123456789abcdef0"},
                "autoscaler": "karpenter",
                "provides": ["networkPolicies"],
            },
            "pools": {"parts": pool("p4de.24xlarge", {"min": 0, "max": 2}, sharing={"mig": {"profile": "1g.10gb"}})},
            "teams": {"a": team(gpus={"parts": {"guaranteed": 56}})},
        },
    )
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
