"""Production is one definition, which everything follows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import Data, planned, stack
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source

DEFINITION = ROOT / "gpu_tenancy" / "model" / "spec" / "__init__.py"


@pytest.mark.parametrize(
    ("sections", "production"),
    [
        ({"environment": "prod"}, True),
        ({"environment": "prod-us"}, True),
        ({"environment": "production-eu"}, True),
        ({"environment": "live"}, True),
        ({"environment": "dev"}, False),
        ({}, False),
        ({"environment": "prod-us", "production": False}, False),
        ({"environment": "eu", "production": True}, True),
        ({"environment": "eu", "production": "true"}, True),
    ],
)
def test_protection_guards_and_summary_agree(sections: Data, production: bool) -> None:  # noqa: FBT001
    given = stack(**sections)
    loaded, plan = load(Source(given)), planned(given)
    action = "deny" if production else "warn"
    assert (loaded.is_production, plan.cluster.protect, plan.guards.action) == (production, production, action)
    kind = (
        f"production (protected, guards {action})" if production else f"not production (not protected, guards {action})"
    )
    assert outlook(loaded).standing == f"environment {loaded.environment}: {kind}"


def judges(tree: ast.AST) -> Iterator[int]:
    """Lines that judge an environment by its name: compare it with a constant, or call a method of its string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            constants = (ast.unparse(side).isupper() or any(_text(part) for part in ast.walk(side)) for side in sides)
            if any(map(_environment, sides)) and any(constants):
                yield node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _environment(node.func.value):
            yield node.lineno


def _text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _environment(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "environment"


def test_only_the_definition_judges_an_environment_by_its_name() -> None:
    files = [file for folder in ("gpu_tenancy", "components", "policy", "provider") for file in _sources(ROOT / folder)]
    found = [f"{file}:{line}" for file in files for line in judges(ast.parse(file.read_text(encoding="utf-8")))]
    assert not found
    old = "stack.environment == PROTECTED; stack.environment == 'prod'; stack.environment.startswith('prod')"
    assert len(list(judges(ast.parse(old)))) == len(old.split("; "))


def _sources(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*.py") if file != DEFINITION]
