"""Writes files of the `tenancy` command: each one whole or not at all, and with its name in every error."""

import os
import stat
from pathlib import Path

from gpu_tenancy.base.errors import naming


def write_text(file: Path, text: str) -> None:
    """Writes a file and the folders above it. After a full disk or a kill the file has its earlier content.

    A link stays, and what it leads to is written; an existing file keeps its mode. A device or a pipe, such as
    `/dev/stdout`, gets the text as it is.

    Raises:
        OSError: the file cannot be written; it names the file.
    """
    with naming(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not file.is_file():
            file.write_text(text, encoding="utf-8", newline="\n")
        else:
            _replace(file.resolve(), text, file.stat().st_mode if file.exists() else None)


def write_private(file: Path, text: str) -> None:
    """Writes a file as `write_text` does, readable only by its owner, and so are the folders that it makes.

    Raises:
        OSError: the file cannot be written; it names the file.
    """
    with naming(file):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(file, text, 0o600)


def _replace(file: Path, text: str, mode: int | None) -> None:
    """Writes a file beside another and puts it in its place, with a mode or the usual one."""
    unfinished = file.with_name(f"{file.name}.new")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        if mode is not None:
            unfinished.chmod(stat.S_IMODE(mode))
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
