"""A stack's objects as YAML files: one an object, the same bytes for the same stack."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import yaml

from gpu_tenancy.console.offline.manifests import KubernetesObject
from gpu_tenancy.console.offline.wire import Json

_MARK: Final = "# Written by the offline preview; the next one overwrites it.\n"
_CLUSTER: Final = "_cluster"  # an underscore cannot begin a namespace's name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_RARE_LINE_BREAK = re.compile(r"[\r\x85\u2028\u2029]")
_NUMBER_ELSEWHERE = re.compile(r"[-+]?(0o[0-7_]+|\.?[0-9][0-9_.]*([eE][-+]?[0-9]+)?)")


class _Dumper(yaml.SafeDumper):
    """Writes what every YAML reader takes for the same: block text, no anchors, no string like a number."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the base class gives the signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Indents lists under their key, as kubectl and most formatters do."""
        super().increase_indent(flow, indentless=False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _RARE_LINE_BREAK.search(text):
        style = '"'  # the only style that escapes them; in the others they come back as another line break
    elif "\n" in text:
        style = "|"
    elif _NUMBER_ELSEWHERE.fullmatch(text):
        # PyYAML follows YAML 1.1 and would leave 1e3 and 0o17 bare; a YAML 1.2 reader takes them for numbers.
        style = "'"
    # The stub leaves out the type of a scalar's value, which may be any.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _represent_text)


def to_yaml(one: KubernetesObject) -> str:
    """Returns one object as YAML, without its secrets."""
    return as_yaml(one.shown)


def as_yaml(content: Mapping[str, Json]) -> str:
    """Returns plain data as YAML that every reader takes for the same."""
    return yaml.dump(
        dict(content),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=2**16,
        default_flow_style=False,
    )


def write(objects: Sequence[KubernetesObject], folder: Path) -> list[Path]:
    """Writes each object to `<namespace or _cluster>/<kind>-<name>.yaml` and returns the files, sorted.

    Files of an earlier run that have no object any more are removed, and folders that this leaves empty; a
    file without this module's first line is never touched. Unchanged files keep their time.

    Raises:
        ValueError: two objects would share a file: they are the same one, which `problems` reports.
        FileExistsError: a file in the way was not written by an earlier run.
        OSError: a file cannot be written.
    """
    return write_texts({path: to_yaml(one) for path, one in _paths(objects).items()}, folder)


def write_texts(found: Mapping[PurePosixPath, str], folder: Path) -> list[Path]:
    """Writes texts into a folder, as `write` does, and returns the files, sorted.

    Raises:
        FileExistsError: a file in the way was not written by an earlier run.
        OSError: a file cannot be written.
    """
    texts = {folder / path: _MARK + text for path, text in found.items()}
    earlier = {path: text for path in folder.rglob("*.yaml") if (text := _own_text(path)) is not None}
    for path in sorted(texts):
        if path.exists() and path not in earlier:
            message = f"{path}: this file was not written by the preview; move it or choose another folder"
            raise FileExistsError(message)
    for path, text in texts.items():
        if earlier.get(path) != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for path in earlier.keys() - texts.keys():
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return sorted(texts)


def _own_text(path: Path) -> str | None:
    """The text of a file that an earlier run wrote, None for any other file."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text if text.startswith(_MARK) else None


def _paths(objects: Iterable[KubernetesObject]) -> dict[PurePosixPath, KubernetesObject]:
    """Where each object goes.

    Of two kinds that share their name (a Job of batch and one of Volcano) Kubernetes' own keeps the plain
    file name, so that adding the other does not rename it.
    """
    found: dict[PurePosixPath, KubernetesObject] = {}
    for one in sorted(objects, key=lambda one: ("." in one.group, one.group, one.urn)):
        place = PurePosixPath(_UNSAFE.sub("_", one.namespace) or _CLUSTER)
        name = _UNSAFE.sub("_", one.name) or "unnamed-" + _UNSAFE.sub("_", one.urn.rpartition("::")[2])
        kind = one.kind.lower()
        path = place / f"{kind}-{name}.yaml"
        if path in found and one.group:
            path = place / f"{kind}.{one.group}-{name}.yaml"
        if path in found:
            message = f"{one.urn} and {found[path].urn} would share the file {path}; rename one"
            raise ValueError(message)
        found[path] = one
    return found
