"""Which pack is asked, by the words of the option `--policy`."""

from pathlib import Path
from typing import Final

from console.errors import ConsoleError
from console.policies.judging import PackChoice
from console.project import ROOT

OURS: Final = ROOT / "policy"
_PRODUCTION: Final = ("prod", "live")
"""How the names of environments begin that have the rules of production."""


def config_set(environment: str) -> str:
    """The set of `policy/config` that an environment has: `prod` or `dev`."""
    return "prod" if environment.lower().startswith(_PRODUCTION) else "dev"


def choose(text: str, environment: str) -> PackChoice:
    """A pack from `folder`, `folder=config.json`, or the bare name of one of ours.

    Ours have the set of the stack's environment where no other is named.

    Raises:
        ConsoleError: there is no such folder.
    """
    place, separator, config = text.partition("=")
    given = Path(config) if separator else None
    if place and place == Path(place).name and (OURS / place / "PulumiPolicy.yaml").is_file():
        own = OURS / "config" / f"{place}-{config_set(environment)}.json"
        return PackChoice(OURS / place, given or (own if own.is_file() else None))
    folder = Path(place)
    if not place or not folder.is_dir():
        names = ", ".join(sorted(file.parent.name for file in OURS.glob("*/PulumiPolicy.yaml")))
        raise ConsoleError(f"there is no policy pack {place!r}", f"name its folder, or one of ours: {names}")
    return PackChoice(folder, given)
