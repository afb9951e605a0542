"""Kueue of the minor version before the pinned one, built and installed as the pinned one is, for upgrades.

The control plane's module graph with the other version of Kueue: only Kueue's own packages are compiled, in two minutes
on a quiet machine.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from gpu_tenancy.base.output import write_text
from gpu_tenancy.base.progress import Report
from gpu_tenancy.embedded import definitions
from gpu_tenancy.embedded.building import SOURCE, build, built, find_go
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.controllers.launching import Wanted
from gpu_tenancy.embedded.controllers.table import Row, read_rows, with_more
from gpu_tenancy.embedded.definitions.pins import Module, Pin, read_pins
from gpu_tenancy.local import up as deploying
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.yaml import read_table

MODULE: Final = "sigs.k8s.io/kueue"
VERSION: Final = "v0.18.4"
# Of the module and of its go.mod.
SUMS: Final = ("h1:+Vs1H5sjXeSGG8BxvkrJCrpovB0vpuIHfkwSmlNSkyc=", "h1:r+uAz3Srk1KTIGUXcZ2vFHNAsbzxPyp4BQsUYeovpAE=")


def source(cache: Path) -> str:
    """A folder with the go.mod and go.sum of the control plane, but for the version of Kueue."""
    folder = cache / f"kueue-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    graph = (SOURCE / "go.mod").read_text(encoding="utf-8")
    sums = (SOURCE / "go.sum").read_text(encoding="utf-8")
    own = f"{MODULE} {VERSION} {SUMS[0]}\n{MODULE} {VERSION}/go.mod {SUMS[1]}\n"
    found = {
        "go.mod": re.sub(rf"^(\t{re.escape(MODULE)}) v\S+", rf"\1 {VERSION}", graph, flags=re.MULTILINE),
        "go.sum": re.sub(rf"^{re.escape(MODULE)} .*\n", "", sums, flags=re.MULTILINE) + own,
    }
    for name, text in found.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


def program(cache: Path) -> Path:
    return built(cache, "kueue", source(cache))


def build_program(cache: Path, report: Report) -> None:
    if not program(cache).is_file():
        build(cache, report, {"kueue": f"{MODULE}/cmd/kueue"}, source=source(cache), what=f"Kueue {VERSION}")


def _definitions(cache: Path, report: Report, storage: str) -> dict[Pin, Path]:
    """Its definitions, with a storage version of the API."""
    module = Module(MODULE, VERSION, "config/components/crd/bases", SUMS)
    folder = definitions.module_folders([module], find_go((1, 21), cache, report))[module] / module.folder
    found: dict[Pin, Path] = {}
    for file in sorted(folder.glob("*.yaml")):
        content = read_table(file)
        for version in content["spec"]["versions"]:
            version["storage"] = version["name"] == storage
        written = cache / "definitions" / f"kueue-{VERSION}-{storage}" / file.name
        write_text(written, yaml.safe_dump(content))
        found[Pin("kueue", VERSION, file.name, f"{VERSION}-{storage}", module)] = written
    return found


def _without_gates(item: Wanted) -> Wanted:
    """Kueue exits for unknown gates, and the stack sets DisableWaitForPodsReady of 0.19."""
    values = with_more(item.release.values, {"controllerManager": {"featureGates": None}})
    return replace(item, release=replace(item.release, values=values))


@contextmanager
def installing(cache: Path, report: Report, storage: str) -> Generator[None]:
    """Has `up` install this version; objects are stored as `storage`, which was v1beta1 until Kueue 0.15."""
    build_program(cache, report)
    earlier = _definitions(cache, report, storage)

    def pins() -> tuple[Pin, ...]:
        return (*(pin for pin in read_pins() if pin.operator != "kueue"), *earlier)

    def fetched(wanted: Sequence[Pin], folder: Path, told: Report) -> Mapping[Pin, Path]:
        others = definitions.fetch([pin for pin in wanted if pin not in earlier], folder, told)
        return {**others, **{pin: file for pin, file in earlier.items() if pin in wanted}}

    def rows() -> Mapping[str, Row]:
        of_version = {"version": VERSION, "sum": SUMS[0], "go_mod_sum": SUMS[1]}
        return {**read_rows(), "kueue": read_rows()["kueue"].model_copy(update=of_version)}

    def wanted(stack: Stack, programs: Mapping[str, Path]) -> tuple[Wanted, ...]:
        return tuple(_without_gates(item) if item.name == "kueue" else item for item in own(stack, programs))

    own = table.wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(table.FOLDER, str(program(cache).parent))
        patch.setattr(deploying, "read_pins", pins)
        patch.setattr(deploying, "fetch", fetched)
        patch.setattr(table, "read_rows", rows)
        patch.setattr(table, "wanted", wanted)
        yield
