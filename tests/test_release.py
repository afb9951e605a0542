"""A release has the same version everywhere."""

import re
import tomllib
from typing import Any

from repository import ROOT

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
