"""The packages of `uv.lock`, their use, and whether their licenses are allowed."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "uv.lock"
PAGE: Final = ROOT / "docs" / "licenses.md"
UNKNOWN: Final = "unknown"
_CLASSIFIER: Final = "License ::"
_LONGEST: Final = 80  # characters of a license's name; some packages have the whole text in its place
PROJECT: Final = "gpu-tenancy"
# Of every user, of deployments, of this repository only. Extras such as `aws` include `deploy`.
RUN, DEPLOY, DEVELOPMENT = "run", "deploy", "development"


@dataclass(frozen=True, slots=True)
class Package:
    """A locked package."""

    name: str
    version: str
    use: str  # the first that applies of `run`, the name of an extra, `development`


def locked() -> tuple[Package, ...]:
    """The packages of `uv.lock` without the project itself, by name."""
    entries = _entries()
    uses = _uses(entries)
    return tuple(
        Package(name, entry["version"], uses.get(name, DEVELOPMENT))
        for name, entry in sorted(entries.items())
        if name != PROJECT
    )


def _entries() -> dict[str, Any]:
    return {entry["name"]: entry for entry in tomllib.loads(LOCK.read_text(encoding="utf-8"))["package"]}


def _wanted(project: Any) -> Iterator[tuple[str, list[str]]]:
    yield RUN, list(_names(project["dependencies"]))
    extras: Mapping[str, Any] = project.get("optional-dependencies", {})
    for extra in sorted(extras, key=lambda name: (name != DEPLOY, name)):
        yield extra, list(_names(extras[extra]))


def _uses(entries: Mapping[str, Any]) -> dict[str, str]:
    uses: dict[str, str] = {}
    for use, names in _wanted(entries[PROJECT]):
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in uses:
                uses[name] = use
                # With all of its extras: rather more than are installed than fewer.
                extras = entries[name].get("optional-dependencies", {}).values()
                for wanted in (entries[name].get("dependencies", ()), *extras):
                    waiting += _names(wanted)
    return uses


def _names(wanted: Iterable[Any]) -> Iterator[str]:
    return (entry["name"] for entry in wanted)


@dataclass(frozen=True, slots=True)
class Rules:
    """The table `licenses.yaml`."""

    allowed: frozenset[str]  # licenses that any package can have
    written: Mapping[str, str]  # SPDX expressions by the text in packages' metadata
    packages: Mapping[str, str]  # SPDX expressions of packages whose metadata does not have one
    exceptions: Mapping[str, str]  # reasons why packages for development can have another license


def rules() -> Rules:
    """The table of this repository."""
    text = (Path(__file__).parent / "licenses.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    packages = {name: row["license"] for name, row in table["packages"].items()}
    return Rules(frozenset(table["allowed"]), table["written"], packages, table["exceptions"])


def license_of(package: str, table: Rules) -> str | None:
    """The SPDX expression of a package, or `unknown`; None if it is not installed, as for another Python version."""
    if package in table.packages:
        return table.packages[package]
    try:
        about = metadata(package)
    except PackageNotFoundError:
        return None
    for text in _written(about):
        if len(text) <= _LONGEST:
            with suppress(InvalidLicenseExpression):
                return canonicalize_license_expression(table.written.get(text, text))
    return UNKNOWN


def _written(about: PackageMetadata) -> Iterator[str]:
    """Licenses in the metadata, the most exact first."""
    for key in ("License-Expression", "License"):
        if key in about:
            yield about[key]
    for classifier in about.get_all("Classifier", []):
        if classifier.startswith(_CLASSIFIER):
            yield classifier.rpartition(" :: ")[2]


def problems(licenses: Mapping[str, str], packages: Sequence[Package], table: Rules) -> list[str]:
    """Licenses that are not allowed, each with its place and its fix."""
    found: list[str] = []
    for package in packages:
        expression = licenses.get(package.name, UNKNOWN)
        excepted = package.use == DEVELOPMENT and package.name in table.exceptions
        if expression == UNKNOWN:
            fix = "read its license file and add the package to dependencies/licenses.yaml"
            found.append(f"uv.lock: {package.name}: the license is unknown; {fix}")
        elif not excepted and not is_allowed(expression, table.allowed):
            fix = "use another package, or change dependencies/licenses.yaml with a reason"
            found.append(f"uv.lock: {package.name}: license {expression} is not allowed; {fix}")
    return found


def is_allowed(expression: str, allowed: frozenset[str]) -> bool:
    """Whether a license is allowed, of an OR at least one, of an AND each; raises ValueError for parentheses.

    AND binds more tightly than OR: https://spdx.github.io/spdx-spec/v3.0.1/annexes/spdx-license-expressions/.
    """
    if "(" in expression:
        raise ValueError(f"{expression}: parentheses are not supported")
    return any(all(one in allowed for one in part.split(" AND ")) for part in expression.split(" OR "))


def page(licenses: Mapping[str, str], packages: Sequence[Package], table: Rules) -> str:
    """The page in Markdown: packages by name, with version, use and license."""
    rows = [f"| {one.name} | {one.version} | {one.use} | {licenses.get(one.name, UNKNOWN)} |" for one in packages]
    reasons = [f"- `{name}`: {reason}." for name, reason in table.exceptions.items()]
    return "\n".join(
        [
            "# Licenses",
            "",
            "<!-- Written by `make licenses`; do not edit. -->",
            "",
            "The packages of `uv.lock`, with their use. *run*: every installation has it. *aws*, *azure*, *gcp*: the",
            "extra of this name has it. *development*: only this repository's checks and docs need it. The wheel of",
            "this project contains none of them.",
            "",
            f"Allowed: {', '.join(sorted(table.allowed))}. For development also:",
            "",
            *reasons,
            "",
            "| package | version | use | license |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def listed(text: str) -> dict[str, tuple[str, str]]:
    """Version and license by package, as a page lists them."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: (row[1], row[3]) for row in cells if row[0] != "package"}


def main() -> None:
    """Writes the page; a package that is not installed here keeps its license on the page."""
    packages, table = locked(), rules()
    before = listed(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else {}
    kept = {name: expression for name, (_, expression) in before.items()}
    licenses = {one.name: license_of(one.name, table) or kept.get(one.name, UNKNOWN) for one in packages}
    if found := problems(licenses, packages, table):
        raise SystemExit("\n".join(found))
    PAGE.write_text(page(licenses, packages, table), encoding="utf-8")


if __name__ == "__main__":
    main()
