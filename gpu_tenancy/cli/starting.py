"""A new project of a team's own, around the installed package."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.writing import write_text
from gpu_tenancy.model.catalogue.clouds import clouds as known_clouds
from gpu_tenancy.model.schema import schema_text
from gpu_tenancy.packs.choosing import shipped_sets

_TEMPLATES: Final = {
    "Pulumi.yaml": "Pulumi.yaml.j2",
    "__main__.py": "__main__.py.j2",
    "requirements.txt": "requirements.txt.j2",
    "README.md": "README.md.j2",
    ".gitignore": "gitignore.j2",
    ".github/workflows/pull-request.yaml": "pull-request.yaml.j2",
    "stacks/Pulumi.dev.yaml": "stack.yaml.j2",
    "tests/test_stacks.py": "test_stacks.py.j2",
}
"""Files of a new project, each with its template in `starter/`."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""What Pulumi takes for a project's name: https://www.pulumi.com/docs/iac/concepts/projects/project-file/"""


def start(folder: Path, clouds: tuple[str, ...] = ()) -> list[Path]:
    """Writes a new project and returns its files, in their order.

    Args:
        folder: of the project, named as it is to be called; made where it does not exist.
        clouds: whose SDKs it installs; each is an extra of the package. The stack is for the first.

    Raises:
        ConsoleError: the name is not valid, a cloud is unknown, or a file exists already; then nothing is written.
        OSError: a file cannot be written.
    """
    name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise ConsoleError(f"{name!r} is not a valid project name", "use letters, digits, '_', '.' and '-'")
    extras = sorted(cloud for cloud, rules in known_clouds().items() if rules.package)
    if unknown := sorted(set(clouds) - set(extras)):
        raise ConsoleError(f"unknown cloud {unknown[0]!r}", f"use one of {', '.join(extras)}")
    texts = dict(_texts(name, clouds))
    if existing := [path for path in texts if (folder / path).exists()]:
        raise ConsoleError(f"{folder / existing[0]} already exists", "specify a new folder")
    for path, text in texts.items():
        write_text(folder / path, text)
    return [folder / path for path in texts]


def _texts(name: str, clouds: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    environment = Environment(
        loader=PackageLoader("gpu_tenancy.cli", "starter"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,  # noqa: S701 - no template is HTML
    )
    facts = {
        "name": name,
        "version": version("gpu-tenancy"),
        "extra": f"[{','.join(sorted(set(clouds)) or ['deploy'])}]",
        "cloud": clouds[0] if clouds else "",
    }
    for path, template in _TEMPLATES.items():
        yield path, environment.get_template(template).render(facts)
    yield "stacks/schema.json", schema_text()
    for file in shipped_sets():
        yield f"policy/config/{file.name}", file.read_text(encoding="utf-8")
