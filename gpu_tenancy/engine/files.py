"""A stack's objects and Helm releases as YAML: one file for each, with the same bytes for the same stack.

Most texts are written without PyYAML, with the same bytes and ten times as fast: `test_engine_files.py` compares both.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final, cast

import yaml

from gpu_tenancy.base.errors import naming
from gpu_tenancy.base.json import Json, at, int_at, map_at, text_at
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue.releases import pinned

_RARE_LINE_BREAK = re.compile(r"[\r\x85\u2028\u2029]")
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(0o[0-7_]+|\.?[0-9][0-9_.]*([eE][-+]?[0-9]+)?)")
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_/](?: ?[A-Za-z0-9_./,()=+-]|:(?=[A-Za-z0-9_./-]))*")
"""Texts that need at most quotes: no indicator of YAML at a place where it would count."""
_BEGIN_OF_LINE: Final = re.compile(r"(?<=\n)(?=[^\n])")
_KEY_LENGTH: Final = 100  # characters up to which a text can be a key on one line; PyYAML allows 128
_WIDTH: Final = 2**16  # characters after which PyYAML breaks lines; texts of more than half of them are left to it


class _Dumper(yaml.SafeDumper):
    """Writes YAML that every parser reads the same: block text, no anchors, quoted strings that look like numbers."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class gives the signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indents lists under their key, as kubectl and most formatters do."""
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _RARE_LINE_BREAK.search(text):
        style = '"'  # other styles do not escape these line breaks, and parsers normalize them
    elif "\n" in text:
        style = "|"
    elif _NUMBER_ELSEWHERE.fullmatch(text):
        # PyYAML follows YAML 1.1 and does not quote 1e3 and 0o17, which are numbers in YAML 1.2.
        style = "'"
    # The stub has no type for a scalar's value.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _represent_text)


class _NotSimpleError(Exception):
    """A value has a text that only PyYAML writes."""


def as_yaml(content: Mapping[str, Json]) -> str:
    """Returns plain data as YAML that every parser reads the same."""
    if not content:
        return "{}\n"
    parts: list[str] = []
    try:
        _write_lines(dict(content), "", parts)
    except _NotSimpleError:
        return by_pyyaml(content)
    return "".join(parts)


def by_pyyaml(content: Mapping[str, Json]) -> str:
    """Returns the result of `as_yaml`, written by PyYAML alone."""
    return yaml.dump(
        dict(content), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )


def _write_lines(content: dict[str, Json] | list[Json], indent: str, parts: list[str]) -> None:
    """Writes an object or a list; its first line has no indent, because it can follow the hyphen of a list."""
    keyed = isinstance(content, dict)
    entries = content.items() if isinstance(content, dict) else (("", item) for item in content)
    inside, before = f"{indent}  ", ""
    for key, value in entries:
        parts.append(f"{before}{_key(key)}:" if keyed else f"{before}- ")
        before = indent
        if isinstance(value, dict | list) and value:
            parts.append(f"\n{inside}" if keyed else "")
            _write_lines(value, inside, parts)
        else:
            parts.append(f"{' ' if keyed else ''}{_scalar(value, indent)}\n")


def _scalar(value: Json, indent: str) -> str:
    """A value on the line of its key or hyphen; lines that follow have two spaces more than `indent`."""
    if isinstance(value, str):
        text = _text(value)
        return text if "\n" not in text else _BEGIN_OF_LINE.sub(indent, text)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if value is None:
        return "null"
    if isinstance(value, float):
        raise _NotSimpleError
    return "[]" if isinstance(value, list) else "{}"


@lru_cache(maxsize=1024)
def _key(text: str) -> str:
    if not _SIMPLE.fullmatch(text) or len(text) > _KEY_LENGTH:
        raise _NotSimpleError
    return _text(text)


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    """A value as YAML, quoted if needed; lines after the first have the indent of an object at the top."""
    if len(text) > _WIDTH // 2:
        raise _NotSimpleError
    if _SIMPLE.fullmatch(text):
        resolvers = cast("dict[str, list[tuple[str, re.Pattern[str]]]]", yaml.SafeDumper.yaml_implicit_resolvers)
        has_type = any(pattern.match(text) for _, pattern in resolvers.get(text[0], ()))
        return f"'{text}'" if _NUMBER_ELSEWHERE.fullmatch(text) or has_type else text
    written = by_pyyaml({"k": text})
    if written.endswith("\n...\n"):  # blank lines at the end of a block: a mark follows where the document ends too
        raise _NotSimpleError
    return written.removeprefix("k: ").removesuffix("\n")


_MARK: Final = "# Written by the offline preview; the next one overwrites it.\n"
_WRITERS: Final = 2
_CLUSTER: Final = "_cluster"  # an underscore cannot begin a namespace's name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def write(objects: Sequence[KubernetesObject], folder: Path) -> list[Path]:
    """Writes each object, without secrets, to `<namespace or _cluster>/<kind>-<name>.yaml`; returns the files, sorted.

    Stale files of an earlier run are deleted, and folders that become empty. A file without this module's first line
    is never changed; FileExistsError if it is in the way. Unchanged files keep their modification time. Raises OSError
    if a file cannot be written, and ValueError if objects have the same file: `problems` reports this duplicate.
    """
    return write_texts({path: as_yaml(item.shown) for path, item in _paths(objects).items()}, folder)


def write_texts(contents: Mapping[PurePosixPath, str], folder: Path) -> list[Path]:
    """Writes texts into a folder and returns the files, sorted; with the rules and errors of `write`."""
    texts = {folder / path: _MARK + text for path, text in contents.items()}
    earlier = {path: text for path in folder.rglob("*.yaml") if (text := _own_text(path)) is not None}
    if folder.exists():
        for path in sorted(texts):
            if path not in earlier and path.exists():
                message = f"{path}: file exists and was not written by tenancy; move it or specify another folder"
                raise FileExistsError(message)
    for parent in {path.parent for path in texts}:
        parent.mkdir(parents=True, exist_ok=True)
    _write({path: text for path, text in texts.items() if earlier.get(path) != text})
    for path in earlier.keys() - texts.keys():
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return sorted(texts)


def _write(texts: Mapping[Path, str]) -> None:
    """Writes files with threads: the kernel needs more time to create a file than this program to write its text."""
    paths = sorted(texts)  # by folder, in each of which the kernel creates one file at a time
    share = -(-len(paths) // _WRITERS)

    def write_share(first: int) -> None:
        for path in paths[first : first + share]:
            with naming(path):
                path.write_bytes(texts[path].encode())

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write_share, range(0, len(paths), share or 1)))


def _own_text(path: Path) -> str | None:
    """The text of a file that an earlier run wrote, maybe only its beginning; None for other files."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text if text.startswith(_MARK) or _MARK.startswith(text) else None


def _paths(objects: Iterable[KubernetesObject]) -> dict[PurePosixPath, KubernetesObject]:
    """The objects by file path. A built-in kind keeps the plain file name beside a kind of the same name."""
    objects_by_path: dict[PurePosixPath, KubernetesObject] = {}
    for item in sorted(objects, key=lambda item: ("." in item.group, item.group, item.urn)):
        place = PurePosixPath(_UNSAFE.sub("_", item.namespace) or _CLUSTER)
        name = _UNSAFE.sub("_", item.name) or "unnamed-" + _UNSAFE.sub("_", item.urn.rpartition("::")[2])
        kind = item.kind.lower()
        path = place / f"{kind}-{name}.yaml"
        if path in objects_by_path and item.group:
            path = place / f"{kind}.{item.group}-{name}.yaml"
        if path in objects_by_path:
            message = f"{path}: {item.urn} and {objects_by_path[path].urn} have this file name; rename one of them"
            raise ValueError(message)
        objects_by_path[path] = item
    return objects_by_path


RELEASE: Final = "kubernetes:helm.sh/v3:Release"


@dataclass(frozen=True, slots=True)
class HelmRelease:
    """One Helm release: chart, version, and values for output (without secrets)."""

    urn: str
    name: str
    namespace: str
    chart: str
    repository: str
    version: str
    values: Mapping[str, Json] = field(repr=False)
    digest: str = ""  # of an `oci://` chart, or empty
    timeout: int = 0  # in seconds; 0 is the default
    skip_crds: bool = False

    @property
    def reference(self) -> str:
        """The chart as an argument of Helm, with its digest."""
        return pinned(self.chart, self.digest)

    @property
    def content(self) -> dict[str, Json]:
        """The release as plain data, without empty fields."""
        texts = {key: getattr(self, key) for key in ("name", "namespace", "chart", "repository", "version", "digest")}
        return {key: value for key, value in {**texts, "values": dict(self.values)}.items() if value}


def helm_releases(rendered: Rendered) -> tuple[HelmRelease, ...]:
    """Returns the releases that a stack declares, in the order of their URNs."""
    return tuple(
        _release(registration.urn, registration.shown)
        for registration in rendered.registrations
        if registration.type == RELEASE and not registration.external_id
    )


def _release(urn: str, inputs: Mapping[str, Json]) -> HelmRelease:
    chart = text_at(inputs, "chart")
    chart, _, digest = chart.partition("@") if chart.startswith("oci://") else (chart, "", "")
    return HelmRelease(
        urn=urn,
        name=text_at(inputs, "name"),
        namespace=text_at(inputs, "namespace"),
        chart=chart,
        repository=text_at(inputs, "repositoryOpts", "repo"),
        version=text_at(inputs, "version"),
        values=map_at(inputs, "values"),
        digest=digest,
        timeout=int_at(inputs, "timeout"),
        skip_crds=at(inputs, "skipCrds") is True,
    )


def write_releases(rendered: Rendered, folder: Path) -> list[Path]:
    """Writes each release to `<namespace>/<name>.yaml`; existing files are handled as by `write`."""
    releases = {PurePosixPath(item.namespace, f"{item.name}.yaml"): item for item in helm_releases(rendered)}
    return write_texts({path: as_yaml(release.content) for path, release in releases.items()}, folder)
