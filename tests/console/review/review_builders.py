"""Renderings of a test's own stacks."""

from builders import Data
from console_builders import Project

from gpu_tenancy.console.project import Preview, preview


def rendered(project: Project, sections: Data) -> Preview:
    """What a stack of a project declares."""
    project.write("s", sections)
    return preview("s", project.folder)
