"""Fixtures for tests of the command."""

from pathlib import Path

import pytest
from cli_builders import Project, small


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project.at(tmp_path / "project")
    found.write("good", small())
    return found
