"""Cases for every rule, a module for each module of rules."""

from importlib import import_module
from pathlib import Path

from policy_builders import Case


def all_cases() -> list[Case]:
    """The cases of all modules of this folder."""
    modules = sorted(file.stem for file in Path(__file__).parent.glob("case_*.py"))
    return [case for module in modules for case in import_module(f"cases.{module}").CASES]
