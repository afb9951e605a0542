"""What tests of the command stand on."""

from pathlib import Path

import pytest
from cli_builders import Project, small


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with one stack, `good`."""
    found = Project.at(tmp_path / "project")
    found.write("good", small())
    return found
