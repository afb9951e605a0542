"""What a command loads before it does anything: each start pays for it."""

import sys
from subprocess import run

import pytest

LIGHT = ("gpu_tenancy.base", "gpu_tenancy.cli", "gpu_tenancy.model.names")
"""What `tenancy --help` may load."""


def loaded(module: str) -> set[str]:
    """The modules that are loaded with one."""
    code = f"import {module}, sys; print(*sys.modules)"
    return {*run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()}


@pytest.mark.process
def test_the_list_of_commands_is_shown_without_the_model_and_without_a_client() -> None:
    found = loaded("gpu_tenancy.cli.main")
    own = {name for name in found if name.startswith("gpu_tenancy.")}
    assert "gpu_tenancy.cli.main" in own
    assert {name for name in own if not name.startswith(LIGHT)} == {"gpu_tenancy.model"}
    assert not {"kubernetes", "pulumi", "pydantic"} & found


@pytest.mark.process
@pytest.mark.parametrize("module", ["explain.show", "explain.why", "explain.fit", "jobs.listing", "survey.survey"])
def test_whoever_asks_a_cluster_waits_for_no_schema_of_stacks(module: str) -> None:
    found = loaded(f"gpu_tenancy.{module}")
    assert f"gpu_tenancy.{module}" in found
    assert not {name for name in found if name.startswith("gpu_tenancy.model.spec")}
