"""A folder of code in the object of a job, where the cluster offers no other place to those who only submit jobs.

A researcher may not create ConfigMaps, and there may be no registry to push to. So the archive is an annotation of the
pods, which the kubelet shows to them as a file, and which ends with the job.
https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
"""

import base64
import gzip
import io
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.texts import first_names

LARGEST: Final = 180 * 1024
"""Bytes of the archive. All annotations of an object have at most 256 KiB, and base64 makes four bytes of three:
https://github.com/kubernetes/kubernetes/blob/v1.34.0/staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go"""
_LEFT_OUT: Final = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".ipynb_checkpoints"})
"""Folders that are not code, where git does not know what is ignored."""
_SHOWN: Final = 3


def packed(folder: Path) -> str:
    """The files of a folder as the value of the annotation; the same files give the same value.

    In a work tree of git these are the files that git does not ignore.

    Raises:
        ConsoleError: it is no folder, has no files, or they are too large.
    """
    if not folder.is_dir():
        raise ConsoleError(f"--code {folder}: is not a folder", "set the folder in which the command is to run")
    names = sorted(_of_git(folder) or _walked(folder))
    if not names:
        raise ConsoleError(f"--code {folder}: has no files", "add the code, or check .gitignore")
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as packed_, tarfile.open(fileobj=packed_, mode="w") as tar:
        for name in names:
            _add(tar, folder, name)
    if (size := len(content.getvalue())) > LARGEST:
        sizes = {name: (folder / name).lstat().st_size for name in names}
        largest = sorted(sizes, key=lambda name: -sizes[name])
        raise ConsoleError(
            f"--code {folder}: {size // 1024} KiB compressed exceed {LARGEST // 1024} KiB; largest files:"
            f" {first_names(largest, _SHOWN)}",
            "list what is not code in .gitignore, or bring it by the image, or by a claim of the team with --mount",
        )
    return base64.b64encode(content.getvalue()).decode()


def _add(tar: tarfile.TarFile, folder: Path, name: str) -> None:
    """Adds a file or a link without its owner and times."""
    file = folder / name
    entry = tar.gettarinfo(file, name)
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.mode & 0o100 else 0o644
    if entry.isreg() or entry.islnk():
        entry.type, entry.linkname, content = tarfile.REGTYPE, "", file.read_bytes()
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    elif entry.issym():
        tar.addfile(entry)


def _of_git(folder: Path) -> list[str]:
    """Files that git does not ignore; none where the folder is in no work tree."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError:
        return []
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name} if done.returncode == 0 else set[str]()
    return [name for name in names if (folder / name).is_symlink() or (folder / name).is_file()]


def _walked(folder: Path) -> Iterator[str]:
    for above, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        found = (Path(above, name) for name in files)
        yield from (str(file.relative_to(folder)) for file in found if file.is_symlink() or file.is_file())
