"""Commands that need a package of an extra name the command that installs it, for the present installer."""

import json
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from gpu_tenancy.base import installing

METADATA = """Name: gpu-tenancy
Version: 1
Requires-Dist: rich
Requires-Dist: pulumi<4,>=3; extra == 'aws'
Requires-Dist: pulumi-aws<8,>=7 ; extra == 'aws'
Requires-Dist: pulumi<4,>=3; extra == 'deploy'
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an environment in which pip installed the package."""
    (tmp_path / "METADATA").write_text(METADATA)
    (tmp_path / "INSTALLER").write_text("pip\n")

    def installed(_name: str) -> PathDistribution:
        return PathDistribution(tmp_path)

    def found(_name: str) -> str:
        return "/usr/bin/uv"

    monkeypatch.setattr(installing, "distribution", installed)
    monkeypatch.setattr("sys.executable", "/env/python")
    monkeypatch.setattr(installing, "which", found)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "content", "command"),
    [
        ("INSTALLER", "pip\n", "/env/python -m pip install 'gpu-tenancy[deploy]'"),
        ("INSTALLER", "uv", "uv pip install --python /env/python 'gpu-tenancy[deploy]'"),
        ("direct_url.json", json.dumps({"dir_info": {"editable": True}}), "make ready-clouds"),
    ],
)
def test_the_command_is_of_the_installer_that_is_there(
    environment: Path, file: str, content: str, command: str
) -> None:
    (environment / file).write_text(content)
    assert installing.install_command("pulumi") == command


@pytest.mark.parametrize(
    ("module", "what"),
    [("pulumi.runtime", "gpu-tenancy[deploy]"), ("pulumi_aws", "pulumi-aws<8,>=7"), ("gpu_tenancy.x", None)],
)
def test_what_a_missing_module_comes_with_is_named(environment: Path, module: str, what: str | None) -> None:
    assert environment.is_dir()
    problem = installing.missing(ModuleNotFoundError(name=module), "this command")
    assert (problem and problem.fix) == (what and f"run `/env/python -m pip install '{what}'`")
