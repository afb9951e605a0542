"""PromQL on the GPU resources of a stack, shared by dashboards and alerts: the rows of `expressions.yaml`."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template

from gpu_tenancy.base.guarantee import BESIDE
from gpu_tenancy.base.quantity import CPU
from gpu_tenancy.model.kinds import servers
from gpu_tenancy.model.yaml import read_table

JINJA: Final = Environment(
    variable_start_string="<<",
    variable_end_string=">>",
    block_start_string="<%",
    block_end_string="%>",
    comment_start_string="<#",
    comment_end_string="#>",
    undefined=StrictUndefined,
    autoescape=False,  # noqa: S701 - PromQL and Markdown, not HTML
)
RECORDED_EVERY: Final = 300
"""Seconds between two samples of a recording rule. In a month, a series has 8,928 of them, and a query of a thousand
series is below Prometheus' limit of 50 million samples."""


def expressions(resources: tuple[str, ...], teams: tuple[str, ...]) -> Mapping[str, Any]:
    """The expressions by name, for the extended resources of GPUs (`cpu` without GPUs); functions with parameters."""
    given = {
        "resources": resources,
        "teams": teams,
        "seconds": RECORDED_EVERY,
        "noun": "CPUs" if resources == (CPU,) else "GPUs",
        # Kueue's metrics and those of ResourceQuotas have the original names, those of nodes and pods `nvidia_com_gpu`.
        "raw": _matcher("resource", resources),
        "written": _matcher("resource", (re.sub(r"[^a-zA-Z0-9_]", "_", name) for name in resources)),
        "budgets": _matcher("resource", (f"requests.{name}" for name in resources)),
        "beside": _matcher("resource", (name for name in BESIDE if name not in resources)),
        "in_teams": _matcher("namespace", teams),
        "server_kinds": "|".join(servers()),
        "longest_first": _one_of(sorted(teams, key=len, reverse=True)),
    }
    return {**given, **vars(_rows().make_module(given))}


def _one_of(names: Iterable[str]) -> str:
    """A PromQL regular expression for exactly these names; dots are in brackets, which need no double backslash."""
    return "|".join(name.replace(".", "[.]") for name in names)


def _matcher(label: str, names: Iterable[str]) -> str:
    return f'{label}=~"{_one_of(names)}"'


@cache
def _rows() -> Template:
    """The rows with parameters as macros, the others as variables, which can use any macro and earlier variables."""
    rows = read_table(Path(__file__).with_name("expressions.yaml")).items()
    macros = [f"<% macro {row} %>{text}<% endmacro %>" for row, text in rows if "(" in row]
    values = [f"<% set {row} %>{text}<% endset %>" for row, text in rows if "(" not in row]
    return JINJA.from_string("".join([*macros, *values]))
