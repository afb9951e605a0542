"""What tests of every room stand on: a real API server, started once for the whole run."""

import sys
from collections.abc import Iterator

import pytest

from console.cluster.client import Cluster
from console.cluster.references import Reference
from console.embedded.crds import install
from console.embedded.platform import Platform
from console.embedded.toolchain import Report


@pytest.fixture(scope="session")
def report() -> Report:
    """Lines for whoever waits, past pytest's own capture: a first build takes minutes."""
    return lambda line: print(line, file=sys.__stderr__, flush=True)


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Platform]:
    """An embedded platform of the tests' own, ended by its own pids."""
    found = Platform(tmp_path_factory.mktemp("platform") / "home")
    found.up(report)
    yield found
    found.down()


@pytest.fixture(scope="session")
def cluster(platform: Platform, report: Report) -> Iterator[Cluster]:
    """The platform's API server, with the operators' definitions."""
    with platform.cluster() as found:
        install(found, platform.cache, report)
        yield found


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of one test's own."""
    name = f"test-{abs(hash(request.node.nodeid)):x}"[:40]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    cluster.delete(Reference("v1", "Namespace", name), wait=0)
