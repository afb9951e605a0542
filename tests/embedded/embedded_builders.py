from pathlib import Path


def quiet(_line: str) -> None:
    """Reports to nobody."""


def a_program(folder: Path, name: str, *lines: str) -> Path:
    """A shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    program.chmod(0o755)
    return program
