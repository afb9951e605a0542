"""Guards that are weakened in one place: the tests of this folder before this one must have noticed each."""

from types import ModuleType
from typing import cast

import pytest

from gpu_tenancy.kube.client import Cluster


def test_each_weakened_guard_decides_some_request_of_a_test_otherwise(
    request: pytest.FixtureRequest, cluster: Cluster
) -> None:
    assert cluster
    plugin = cast("ModuleType | None", request.config.pluginmanager.get_plugin("mutation.guards"))
    if plugin is None or not plugin.ran(request.session):
        pytest.skip("run `make mutants`")
    problems: list[str] = plugin.problems(request.config)
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
