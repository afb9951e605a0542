"""Another stack on the embedded platform: named before it is deleted, and kept if the new one is invalid.

test_cli_commands.py tests a running platform.
"""

from pathlib import Path

import pytest
from cli_builders import Project, small

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.problems import StackError
from gpu_tenancy.embedded.certificates import make_certificates, write_client_configs
from gpu_tenancy.embedded.parts import Ports
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.embedded.processes import free_ports
from gpu_tenancy.local.up import Options, other_stack, up

pytestmark = pytest.mark.process


@pytest.fixture
def laden(tmp_path: Path) -> Platform:
    """A stopped platform with a stack of Pulumi's, as after a restart of the machine."""
    found = Platform(tmp_path / "home", tmp_path / "cache")
    make_certificates(found.places)
    write_client_configs(found.places, Ports(*free_ports(4)))
    found.carry(Carried("good", "pulumi", 59))
    return found


def files(platform: Platform) -> set[Path]:
    return set(platform.places.home.rglob("*"))


def test_the_same_stack_or_none_is_not_replaced(laden: Platform, tmp_path: Path) -> None:
    assert other_stack(laden, "good") is None
    assert other_stack(Platform(tmp_path / "new", tmp_path / "cache"), "good") is None


def test_another_stack_is_named_where_the_platform_does_not_run(laden: Platform) -> None:
    content = "good (59 objects, deployed with pulumi; the platform is not running)"
    assert other_stack(laden, "other") == content


def test_another_stack_stays_without_replace(laden: Platform, tmp_path: Path) -> None:
    project, before = Project.at(tmp_path / "project"), files(laden)
    project.write("other", small())
    with pytest.raises(ConsoleError, match=r"carries stack good \(59 objects.* --replace`") as refused:
        up("other", laden, lambda _: None, project.folder)
    assert "STACK=other REPLACE=1" in refused.value.fix
    assert files(laden) == before


def test_other_stack_stays_if_new_one_cannot_run(
    laden: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, before = Project.at(tmp_path / "project"), files(laden)
    project.write("other", small(priorities={}))
    with pytest.raises(StackError):
        up("other", laden, lambda _: None, project.folder, Options(replace=True))
    project.write("other", small())
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "nowhere"))
    with pytest.raises(ConsoleError, match="nowhere is not a folder"):
        up("other", laden, lambda _: None, project.folder, Options(replace=True))
    assert files(laden) == before
