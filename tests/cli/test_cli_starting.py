"""What a command loads before it is known which command it is: each start pays for it."""

import sys
from subprocess import run

import pytest

LIGHT = ("gpu_tenancy.base", "gpu_tenancy.cli", "gpu_tenancy.model.names")
"""The rooms that `tenancy --help` may load: what else there is takes up to a second, which `tenancy queue` does not need."""


@pytest.mark.process
def test_the_list_of_commands_is_shown_without_the_model_and_without_a_client() -> None:
    code = "import gpu_tenancy.cli.main, sys; print(*sys.modules)"
    loaded = run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in loaded if name.startswith("gpu_tenancy.")}
    assert "gpu_tenancy.cli.main" in own
    assert {name for name in own if not name.startswith(LIGHT)} == {"gpu_tenancy.model"}
    assert not {"kubernetes", "pulumi", "pydantic"} & {*loaded}
