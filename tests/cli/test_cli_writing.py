"""Files that the command writes: whole or not at all, with their mode, through links, and named in errors."""

import errno
from pathlib import Path

import pytest

from gpu_tenancy.base.writing import write_private, write_text

FULL = Path("/dev/full")
"""A device of Linux that has no room, and is no regular file."""


def test_a_file_and_its_folders_are_made(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "file"
    write_text(file, "first\n")
    write_text(file, "second\n")
    assert file.read_bytes() == b"second\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_write_that_fails_leaves_the_earlier_content_and_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "stack.yaml"
    write_text(file, "earlier")
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "x" * 100_000 + "\ud800")
    assert file.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_device_is_named_and_not_replaced() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as failed:
        write_text(FULL, "text")
    assert failed.value.errno == errno.ENOSPC
    assert FULL.is_char_device()


def test_a_link_and_the_mode_of_a_file_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("earlier")
    file.chmod(0o640)
    link.symlink_to(file)
    write_text(link, "text")
    assert (link.is_symlink(), file.read_text(), file.stat().st_mode & 0o777) == (True, "text", 0o640)


def test_a_new_file_has_the_usual_mode_and_a_private_one_only_its_owners(tmp_path: Path) -> None:
    usual = tmp_path / "usual"
    usual.touch()
    plain, private = tmp_path / "plain", tmp_path / "folder" / "private"
    write_text(plain, "text")
    write_private(private, "text")
    assert plain.stat().st_mode == usual.stat().st_mode
    assert (private.stat().st_mode & 0o777, private.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_an_open_private_file_is_closed_to_others(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("earlier")
    file.chmod(0o644)
    write_private(file, "text")
    assert file.stat().st_mode & 0o777 == 0o600
