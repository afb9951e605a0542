"""Renderings of stacks that a test defines."""

from builders import Data
from cli_builders import Project

from gpu_tenancy.engine.project import Preview, preview


def rendered(project: Project, sections: Data) -> Preview:
    """The rendered stack of a project."""
    project.write("s", sections)
    return preview("s", project.folder)
