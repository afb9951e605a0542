"""The policy pack that the option `--policy` names."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import gpu_tenancy
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.packs.evaluation import PackChoice

_PACKAGE: Final = Path(gpu_tenancy.__file__).parent
_SHIPPED: Final = _PACKAGE / "policy" if (_PACKAGE / "policy").is_dir() else _PACKAGE.parent / "policy"
"""The packs of this package: beside its modules if installed, else at the top of the repository."""


def shipped_sets() -> list[Path]:
    """The settings of these packs, as files: for each pack one for development and one for production."""
    return sorted((_SHIPPED / "config").glob("*.json"))


def pack_names(project: Path) -> list[str]:
    """The packs that can be named without a folder: those in the project's `policy/`, and those of this package."""
    return sorted({file.parent.name for folder in _places(project) for file in folder.glob("*/PulumiPolicy.yaml")})


def pack_folder(name: str, project: Path) -> Path | None:
    """The folder of a pack, by its name, the project's own first; None if there is none."""
    if not name or name != Path(name).name:
        return None
    return next((folder / name for folder in _places(project) if (folder / name / "PulumiPolicy.yaml").is_file()), None)


def _places(project: Path) -> tuple[Path, Path]:
    return (project / "policy", _SHIPPED)


def choose(text: str, project: Path, *, production: bool) -> PackChoice:
    """A pack from `folder`, `folder=config.json`, or the name of a pack.

    A pack by name gets the configuration set in `policy/config` for production or for development, unless a file is
    named.

    Raises:
        ConsoleError: the folder does not exist.
    """
    place, separator, config = text.partition("=")
    given = Path(config) if separator else None
    pack = pack_folder(place, project)
    if pack:
        name = f"{place}-{'prod' if production else 'dev'}.json"
        sets = (folder / "config" / name for folder in _places(project))
        return PackChoice(pack, given or next((file for file in sets if file.is_file()), None))
    folder = Path(place)
    if not place or not folder.is_dir():
        known = ", ".join(pack_names(project))
        raise ConsoleError(f"policy pack {place!r} does not exist", f"specify its folder, or one of: {known}")
    return PackChoice(folder, given)


def choose_in_copy(text: str, copy: Path, moved: Callable[[Path], Path], *, production: bool) -> PackChoice | None:
    """What `choose` would select in a copy of the project, as at another git ref.

    Args:
        text: as for `choose`.
        copy: the folder with the copy of the project.
        moved: the path in the copy of a path in the project, which is unchanged for a path that is not copied.
        production: whether the stack in the copy is.

    Returns:
        The pack and its configuration in the copy; None if the copy does not have the pack.
    """
    try:
        chosen = choose(text, copy, production=production)
    except ConsoleError:
        return None
    folder, config = moved(chosen.folder), chosen.config and moved(chosen.config)
    if not (folder / "PulumiPolicy.yaml").is_file():
        return None
    return PackChoice(folder, config if config and config.is_file() else None)
