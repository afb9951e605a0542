"""A stack's objects as YAML files: one file per object, with the same bytes for the same stack."""

import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Final

from gpu_tenancy.base.errors import naming
from gpu_tenancy.engine.block import as_yaml
from gpu_tenancy.engine.objects import KubernetesObject

_MARK: Final = "# Written by the offline preview; the next one overwrites it.\n"
_WRITERS: Final = 2
_CLUSTER: Final = "_cluster"  # an underscore cannot begin a namespace's name
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def to_yaml(item: KubernetesObject) -> str:
    """Returns one object as YAML, without its secrets."""
    return as_yaml(item.shown)


def write(objects: Sequence[KubernetesObject], folder: Path) -> list[Path]:
    """Writes each object to `<namespace or _cluster>/<kind>-<name>.yaml` and returns the files, sorted.

    Stale files of an earlier run are deleted, and folders that become empty. A file without this module's first line
    is never changed. Unchanged files keep their modification time.

    Raises:
        ValueError: two objects have the same file, because they are the same object, which `problems` reports.
        FileExistsError: an existing file was not written by an earlier run.
        OSError: a file cannot be written.
    """
    return write_texts({path: to_yaml(item) for path, item in _paths(objects).items()}, folder)


def write_texts(contents: Mapping[PurePosixPath, str], folder: Path) -> list[Path]:
    """Writes texts into a folder, as `write` does, and returns the files, sorted.

    Raises:
        FileExistsError: an existing file was not written by an earlier run.
        OSError: a file cannot be written.
    """
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
    """Writes files with several threads, because the kernel takes longer to create a file than we to write its text."""
    paths = sorted(texts)  # by folder, in each of which the kernel creates one file at a time
    share = -(-len(paths) // _WRITERS)

    def write_share(first: int) -> None:
        for path in paths[first : first + share]:
            with naming(path):
                path.write_bytes(texts[path].encode())

    with ThreadPoolExecutor(_WRITERS) as threads:
        list(threads.map(write_share, range(0, len(paths), share or 1)))


def _own_text(path: Path) -> str | None:
    """The text of a file that an earlier run wrote, if only the beginning of it; None for other files."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    return text if text.startswith(_MARK) or _MARK.startswith(text) else None


def _paths(objects: Iterable[KubernetesObject]) -> dict[PurePosixPath, KubernetesObject]:
    """The objects by file path.

    If two kinds have the same name (such as a Job of batch and of Volcano), the built-in kind has the plain file name,
    so that its file is not renamed when the other is added.
    """
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
