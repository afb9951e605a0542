"""Creates a project of a team's own, around the installed package."""

import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.output import write_text
from gpu_tenancy.model.catalogue.clouds import clouds as known_clouds
from gpu_tenancy.model.schema import schema_text
from gpu_tenancy.packs.configuration import shipped_sets

# Files of a new project, each with its template in `starter/`.
_TEMPLATES: Final = {
    "Pulumi.yaml": "Pulumi.yaml.j2",
    "__main__.py": "__main__.py.j2",
    "requirements.txt": "requirements.txt.j2",
    "README.md": "README.md.j2",
    ".gitignore": "gitignore.j2",
    "stacks/Pulumi.dev.yaml": "stack.yaml.j2",
    "tests/test_stacks.py": "test_stacks.py.j2",
}
_PIPELINES: Final = {
    "github": {
        ".github/workflows/pull-request.yaml": "pull-request.yaml.j2",
        ".github/workflows/comment.yaml": "comment.yaml.j2",
    },
    "gitlab": {".gitlab-ci.yml": "gitlab-ci.yml.j2"},
}
# The action of this repository; its own workflows use it too.
_ACTION: Final = Path(__file__).parent / "starter" / "action.yml"

# A project's name for Pulumi: https://www.pulumi.com/docs/iac/concepts/projects/project-file/
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def start(folder: Path, *, clouds: tuple[str, ...] = (), ci: str = "github") -> list[Path]:
    """Writes a new project with the name of its folder, and returns its files in order.

    `clouds` are extras of the package whose SDKs it installs; the stack is for the first. `ci` is `github` or
    `gitlab`. Raises ConsoleError, before it writes, for an invalid name, an unknown cloud or an existing file.
    """
    name = folder.resolve().name
    if not _NAME.fullmatch(name):
        raise ConsoleError(f"{name!r} is not a valid project name", "use letters, digits, '_', '.' and '-'")
    extras = sorted(cloud for cloud, rules in known_clouds().items() if rules.package)
    if unknown := sorted(set(clouds) - set(extras)):
        raise ConsoleError(f"unknown cloud {unknown[0]!r}", f"use one of {', '.join(extras)}")
    facts = {
        "name": name,
        "requirement": requirement(",".join(sorted(set(clouds)) or ["deploy"])),
        "cloud": clouds[0] if clouds else "",
        "ci": ci,
    }
    texts = dict(_texts(facts))
    if existing := [path for path in texts if (folder / path).exists()]:
        raise ConsoleError(f"{folder / existing[0]} already exists", "specify a new folder")
    for path, text in texts.items():
        write_text(folder / path, text)
    return [folder / path for path in texts]


def requirement(extras: str) -> str:
    """This package from where it is: a clone, a file or a commit, else its version in a registry.

    https://packaging.python.org/specifications/direct-url/
    """
    own = distribution("gpu-tenancy")
    origin = json.loads(own.read_text("direct_url.json") or "{}")
    vcs, url = origin.get("vcs_info"), origin.get("url")
    place = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url
    return f"gpu-tenancy[{extras}] @ {place}" if place else f"gpu-tenancy[{extras}]=={own.version}"


def _texts(facts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    environment = Environment(
        loader=PackageLoader("gpu_tenancy.cli", "starter"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        autoescape=False,  # noqa: S701 - no template is HTML
    )
    for path, template in {**_TEMPLATES, **_PIPELINES[facts["ci"]]}.items():
        yield path, environment.get_template(template).render(facts)
    if facts["ci"] == "github":
        yield ".github/actions/tenancy/action.yml", _ACTION.read_text(encoding="utf-8")
    yield "stacks/schema.json", schema_text()
    for file in shipped_sets():
        settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if "no-cluster-admin" in settings:  # The shipped settings name this repository's own stacks.
            settings["no-cluster-admin"]["admins"] = ["Group:system:masters"]
        yield f"policy/config/{file.name}", json.dumps(settings, indent=2) + "\n"
