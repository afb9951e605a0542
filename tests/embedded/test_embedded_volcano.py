"""The Go module and the definitions of Volcano, compared with the pinned Volcano itself."""

import json
from pathlib import Path
from typing import Any, Final

import platformdirs
import pytest
import yaml

from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded import toolchain
from gpu_tenancy.embedded.definitions import module_folders
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.embedded.toolchain import Go, find_go
from gpu_tenancy.model.catalogue.operators import charts

pytestmark = pytest.mark.process

SOURCE: Final = Path(toolchain.__file__).parent / "volcano"
VOLCANO: Final = "volcano.sh/volcano"
APIS: Final = "volcano.sh/apis"


@pytest.fixture(scope="module")
def go(report: Report) -> Go:
    return find_go((1, 25), platformdirs.user_cache_path("gpu-tenancy"), report)


@pytest.fixture(scope="module")
def own(go: Go) -> dict[str, Any]:
    """The go.mod of our module, as Go reads it."""
    return module_file(go, SOURCE)


@pytest.fixture(scope="module")
def upstream(go: Go) -> Path:
    """The folder of the pinned Volcano in Go's module cache, verified by the sums of the definitions."""
    module = next(iter(definitions()))
    return module_folders([module], go)[module]


def definitions() -> set[Module]:
    """The modules that have Volcano's definitions."""
    return {pin.source for pin in read_pins() if isinstance(pin.source, Module) and pin.source.name == VOLCANO}


def module_file(go: Go, folder: Path) -> dict[str, Any]:
    done = go.output("mod", "edit", "-json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def required(module: dict[str, Any]) -> dict[str, str]:
    return {item["Path"]: item["Version"] for item in module["Require"]}


def replaced(module: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {item["Old"]["Path"]: (item["New"]["Path"], item["New"].get("Version", "")) for item in module["Replace"]}


def sums(folder: Path) -> dict[tuple[str, str], str]:
    lines = (folder / "go.sum").read_text(encoding="utf-8").splitlines()
    return {(name, version): checksum for name, version, checksum in (line.split() for line in lines)}


def test_controllers_and_definitions_have_one_version(own: dict[str, Any]) -> None:
    assert {module.version for module in definitions()} == {required(own)[VOLCANO]}


def test_clusters_get_a_chart_without_a_known_advisory() -> None:
    """GHSA-j38h-7pfq-cxmw: a tenant can stall the scheduler; fixed in 1.15.2."""
    assert tuple(map(int, charts()["volcano"].version.split("."))) >= (1, 15, 2)


def test_go_sum_has_both_checksums_of_each_module(own: dict[str, Any]) -> None:
    entries, replacements = sums(SOURCE), replaced(own)
    built = {replacements.get(name, (name, version)) for name, version in required(own).items()}
    assert {APIS, VOLCANO} <= {name for name, _ in built}
    for name, version in built:
        assert entries[name, version].startswith("h1:")
        assert entries[name, f"{version}/go.mod"].startswith("h1:")


def test_go_sum_has_the_checksums_of_the_definitions() -> None:
    entries = sums(SOURCE)
    assert definitions()
    for module in definitions():
        assert module.sums == (entries[VOLCANO, module.version], entries[VOLCANO, f"{module.version}/go.mod"])


def test_modules_are_replaced_and_required_as_by_volcano_itself(go: Go, own: dict[str, Any], upstream: Path) -> None:
    """The programs are those that Volcano tests and publishes, not its sources with other versions of Kubernetes."""
    theirs = module_file(go, upstream)
    ours = replaced(own)
    assert ours.pop(APIS)[0] == APIS
    expected = replaced(theirs)
    assert expected.pop(APIS)[1] == "", "Volcano no longer builds with a folder of its own: remove our replacement"
    assert ours == expected
    versions = required(theirs)
    assert {name: version for name, version in required(own).items() if versions.get(name, version) != version} == {}


def test_checksums_are_those_of_volcano_itself(upstream: Path) -> None:
    theirs = sums(upstream)
    shared = {key: checksum for key, checksum in sums(SOURCE).items() if key in theirs}
    assert len(shared) > 100
    assert shared == {key: theirs[key] for key in shared}


def test_the_tools_are_the_programs_of_the_charts_images(own: dict[str, Any], upstream: Path) -> None:
    values = yaml.safe_load((upstream / "installer/helm/chart/volcano/values.yaml").read_text(encoding="utf-8"))
    images = (values["basic"][f"{component}_image_name"] for component in ("admission", "controller", "scheduler"))
    programs = {image.partition("/vc-")[2] for image in images}
    assert {item["Path"] for item in own["Tool"]} == {f"{VOLCANO}/cmd/{program}" for program in programs}
    assert all((upstream / "cmd" / program / "main.go").is_file() for program in programs)


def test_each_definition_of_the_chart_is_pinned(upstream: Path) -> None:
    """The scheduler watches kinds that no stack has, and schedules nothing until all of them are served."""
    chart = upstream / "installer/helm/chart/volcano"
    installed = {
        file.name for folder in ("crd/bases", "charts/jobflow/crd/bases") for file in chart.glob(f"{folder}/*")
    }
    assert installed == {pin.file for pin in read_pins() if pin.operator == "volcano"}
