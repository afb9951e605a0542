"""Fixtures for tests of every room: a real API server, started once for all that share it."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from shutil import rmtree
from tempfile import mkdtemp

import pytest
from builders import stack
from documented_definitions import install_documented
from hypothesis import HealthCheck, settings
from platforms import running
from pulumi_tool import read_schema
from queueing import Queueing, definitions_of
from rendered_stacks import SHARED
from shared_platform import (
    LONGEST,
    NEXT,
    OWN,
    QUEUEING,
    WORKING,
    AsFound,
    Sharing,
    platforms_of,
    shared_deployment,
    sharing,
)
from starts import guarded
from xdist.remote import Producer

from benchmarks.leftovers import kill_at_end
from gpu_tenancy.base import terminal
from gpu_tenancy.base.progress import PATIENCE, Report
from gpu_tenancy.embedded.definitions.pins import Module, read_pins
from gpu_tenancy.embedded.platform import Platform
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.source import Source

pytest_plugins = ["layers"]
# How long a draw takes decides no test: another run may keep the machine busy.
settings.register_profile("untimed", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder in which the processes of this run share rendered stacks; workers inherit its name."""
    # A busy machine adds no line to what a command prints.
    pytest.MonkeyPatch().setattr(terminal, "SLOW_AFTER", 3600.0)
    if not hasattr(config, "workerinput"):
        kill_at_end()
        # A machine that is slow or busy decides no test; what hangs is found five times later.
        os.environ.setdefault(PATIENCE, "5")
        # More memory for the garbage collectors of a platform's programs; four platforms fit at once.
        os.environ |= {"GOGC": "400", "GOMEMLIMIT": "1400MiB"}
        os.environ[SHARED] = mkdtemp(prefix="gpu-tenancy-tests-")
        config.add_cleanup(lambda: rmtree(os.environ.pop(SHARED)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Takes modules and tests, which stay, out of what the garbage collector looks through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests of a shared platform, and orders them: sharers of a platform first, of a deployment together."""
    sharers = [item for item in items if platforms_of(item)]
    for item in sharers:
        item.add_marker("platform")
    shared = {item.path for item in sharers}
    deployed = {item.path for item in items if shared_deployment(item)}

    def turn(item: pytest.Item) -> int:
        if item.path in shared:
            return 0 if item.path in deployed else 1
        # The longest files first, so that no process of tests is alone at the end.
        return 2 if item.nodeid.startswith(LONGEST) else 3 if item.get_closest_marker("platform") else 4

    items.sort(key=turn)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Records the next test, so that an unused shared platform is deleted."""
    item.config.stash[NEXT] = nextitem


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Sharing | None:
    """Gives all tests of a shared platform to one worker."""
    return Sharing(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def report() -> Report:
    """Prints lines in spite of pytest's capture: a first build takes minutes."""
    return lambda line: print(line, file=sys.__stderr__, flush=True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For waits that must time out."""
    monkeypatch.delenv(PATIENCE, raising=False)


@pytest.fixture(scope="session")
def platform(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Platform]:
    """A platform without controllers of operators, with every definition of a Go module."""
    pins = [pin for pin in read_pins() if isinstance(pin.source, Module)]
    with running(tmp_path_factory.mktemp("platform") / "home", report, pins=pins) as found:
        yield found


@pytest.fixture(scope="session")
def queueing(tmp_path_factory: pytest.TempPathFactory, report: Report) -> Iterator[Queueing]:
    """Another platform, with Kueue as for a plain stack; `run` restarts it as for another stack."""
    plain = load(Source(stack()))
    home, pins = tmp_path_factory.mktemp("queueing") / "home", definitions_of(plain)
    with running(home, report, pins=pins) as found, found.cluster() as cluster:
        made = Queueing(found, cluster, report)
        made.run(plain)
        yield made


@pytest.fixture(scope="session")
def cluster(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with platform.cluster() as found:
        install_documented(found)
        if any(item.get_closest_marker("pulumi") for item in request.session.items):
            read_schema(platform.kubeconfig)
        yield found


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test, which stays, because its deletion is slow; only objects in progress are deleted."""
    name = f"{OWN}{abs(hash(request.node.nodeid)):x}"[:40]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    for kind in WORKING:
        for one in cluster.list(*kind, namespace=name, metadata_only=True):
            cluster.delete(Reference.of(one), grace=0, wait=0)


@pytest.fixture(scope="session")
def as_found(cluster: Cluster) -> AsFound:
    """The objects of the unused shared platform."""
    return AsFound(cluster)


@pytest.fixture(scope="session")
def queueing_as_found(queueing: Queueing) -> AsFound:
    """The same of the platform with Kueue, except objects of its controllers."""
    return AsFound(queueing.cluster, QUEUEING)


@pytest.fixture(scope="module", autouse=True)
def left_as_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Checks that each file leaves a shared platform unchanged.

    The last one ends the platform: its idle processes take a tenth of a core.
    """
    used = set[str]()
    if sharing(request.node.nodeid):
        used.update(*(platforms_of(item) for item in request.session.items if item.path == request.path))
    checks = [
        *(["as_found"] if used & {"platform", "cluster"} else []),
        *(["queueing_as_found"] if "queueing" in used else []),
    ]
    with guarded(""):
        found: list[AsFound] = [request.getfixturevalue(check) for check in checks]
    yield
    following = request.config.stash[NEXT]
    with guarded(""):
        for one in found:
            one.check()
        if following is None or sharing(following.nodeid) is None:
            if used & {"platform", "cluster"}:
                request.getfixturevalue("platform").down()
            if "queueing" in used:
                request.getfixturevalue("queueing").platform.down()
