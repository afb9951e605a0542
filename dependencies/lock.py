"""The packages of `uv.lock`, and what each is there for."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = ROOT / "uv.lock"
PROJECT: Final = "gpu-tenancy"
RUN, DEPLOY, DEVELOPMENT = "run", "deploy", "development"
"""Uses of a package: of every user, of those who deploy, and of this repository only. The other extras, such as `aws`,
include `deploy`."""


@dataclass(frozen=True, slots=True)
class Package:
    """A locked package.

    Attributes:
        use: the first that applies of `run`, the name of an extra, `development`.
        files: its wheels and its source, with their SHA-256 in hexadecimal.
    """

    name: str
    version: str
    use: str
    files: tuple[tuple[str, str], ...]
    needs: tuple[str, ...]


def locked(file: Path = LOCK) -> tuple[Package, ...]:
    """The packages of a lock without the project itself, by name."""
    entries = _entries(file)
    uses = _uses(entries)
    return tuple(
        Package(
            name,
            entry["version"],
            uses.get(name, DEVELOPMENT),
            tuple(sorted(_files(entry))),
            tuple(sorted(set(_names(entry.get("dependencies", ()))))),
        )
        for name, entry in sorted(entries.items())
        if name != PROJECT
    )


def direct(file: Path = LOCK) -> frozenset[str]:
    """The names of the packages that the project, or one of its extras, names itself."""
    return frozenset(name for _, names in _wanted(_entries(file)[PROJECT]) for name in names)


def _entries(file: Path) -> dict[str, Any]:
    return {entry["name"]: entry for entry in tomllib.loads(file.read_text(encoding="utf-8"))["package"]}


def _wanted(project: Any) -> Iterator[tuple[str, list[str]]]:
    yield RUN, list(_names(project["dependencies"]))
    extras: Mapping[str, Any] = project.get("optional-dependencies", {})
    for extra in sorted(extras, key=lambda name: (name != DEPLOY, name)):
        yield extra, list(_names(extras[extra]))


def _files(entry: Any) -> Iterator[tuple[str, str]]:
    for part in (*entry.get("wheels", ()), *([entry["sdist"]] if "sdist" in entry else [])):
        yield part["url"].rpartition("/")[2], part["hash"].removeprefix("sha256:")


def _uses(entries: Mapping[str, Any]) -> dict[str, str]:
    uses: dict[str, str] = {}
    for use, names in _wanted(entries[PROJECT]):
        waiting = [*names]
        while waiting:
            name = waiting.pop()
            if name not in uses:
                uses[name] = use
                waiting += _all_names(entries[name])
    return uses


def _all_names(entry: Any) -> Iterator[str]:
    """What an entry depends on, with all of its extras: rather more than are installed than fewer."""
    yield from _names(entry.get("dependencies", ()))
    for wanted in entry.get("optional-dependencies", {}).values():
        yield from _names(wanted)


def _names(wanted: Iterable[Any]) -> Iterator[str]:
    return (entry["name"] for entry in wanted)
