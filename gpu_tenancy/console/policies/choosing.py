"""Which pack is asked, by the words of the option `--policy`."""

from pathlib import Path
from typing import Final

import gpu_tenancy
from gpu_tenancy.console.errors import ConsoleError
from gpu_tenancy.console.policies.judging import PackChoice

_PRODUCTION: Final = ("prod", "live")
"""How the names of environments begin that have the rules of production."""


_PACKAGE: Final = Path(gpu_tenancy.__file__).parent
_SHIPPED: Final = _PACKAGE / "policy" if (_PACKAGE / "policy").is_dir() else _PACKAGE.parent / "policy"
"""The packs that come with this package: beside its modules where it is installed, at the top of its repository."""


def shipped_sets() -> list[Path]:
    """The settings of these packs, as files: for each pack one for development and one for production."""
    return sorted((_SHIPPED / "config").glob("*.json"))


def pack_names(project: Path) -> list[str]:
    """The packs that may be named without a folder: those of the project's `policy/`, and those of this package."""
    return sorted({file.parent.name for folder in _places(project) for file in folder.glob("*/PulumiPolicy.yaml")})


def pack_folder(name: str, project: Path) -> Path | None:
    """The folder of a pack by its name, the project's own first; None where there is none."""
    if not name or name != Path(name).name:
        return None
    return next((folder / name for folder in _places(project) if (folder / name / "PulumiPolicy.yaml").is_file()), None)


def _places(project: Path) -> tuple[Path, Path]:
    return (project / "policy", _SHIPPED)


def config_set(environment: str) -> str:
    """The set of `policy/config` that an environment has: `prod` or `dev`."""
    return "prod" if environment.lower().startswith(_PRODUCTION) else "dev"


def choose(text: str, environment: str, project: Path) -> PackChoice:
    """A pack from `folder`, `folder=config.json`, or the bare name of one in the project's `policy/`.

    Those have the set of the stack's environment where no other is named.

    Raises:
        ConsoleError: there is no such folder.
    """
    place, separator, config = text.partition("=")
    given = Path(config) if separator else None
    pack = pack_folder(place, project)
    if pack:
        name = f"{place}-{config_set(environment)}.json"
        sets = (folder / "config" / name for folder in _places(project))
        return PackChoice(pack, given or next((file for file in sets if file.is_file()), None))
    folder = Path(place)
    if not place or not folder.is_dir():
        known = ", ".join(pack_names(project))
        raise ConsoleError(f"policy pack {place!r} does not exist", f"specify its folder, or one of: {known}")
    return PackChoice(folder, given)
