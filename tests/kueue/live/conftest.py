"""Fixtures for tests on a real Kueue."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from queueing import Queueing
from researchers import Researcher, holding, researching
from shared_platform import NEXT, AsFound, shared_deployment

from gpu_tenancy.kube.client import Cluster, Manifest


@dataclass(slots=True)
class Research:
    """The stack `local` with a researcher, which test files share one after another; each leaves it unchanged."""

    queueing: Queueing
    as_found: AsFound
    folder: Path
    member: Researcher | None = None
    _deployed: ExitStack = field(default_factory=ExitStack)

    def up(self) -> Researcher:
        if self.member is None:
            self.member = self._deployed.enter_context(researching(self.queueing, self.folder))
            self.as_found.keep(self._kept(self.member))
        return self.member

    def down(self, member: Researcher) -> None:
        kept, self.member = self._kept(member), None
        self._deployed.close()
        self.as_found.release(kept)

    def _kept(self, member: Researcher) -> list[Manifest]:
        return [*member.objects, *self.queueing.cluster.list("v1", "Node", metadata_only=True)]


@pytest.fixture(scope="session")
def research(queueing: Queueing, queueing_as_found: AsFound, tmp_path_factory: pytest.TempPathFactory) -> Research:
    return Research(queueing, queueing_as_found, tmp_path_factory.mktemp("rita"))


@pytest.fixture(scope="module")
def researcher(research: Research, request: pytest.FixtureRequest) -> Iterator[Researcher]:
    """A researcher of the stack `local`; the stack stays if the next file asks for one, too."""
    rita = research.up()
    yield rita
    if shared_deployment(request.config.stash[NEXT]) != "research":
        research.down(rita)
        return
    for manifest in rita.objects:  # what a file has changed of it
        rita.cluster.apply(manifest, force=True, metadata_only=True)


@pytest.fixture(scope="module")
def boss(researcher: Researcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    """A user with all rights in the namespace, for kinds that no role of people may create."""
    with holding(researcher, "cluster-admin", tmp_path_factory.mktemp("boss")) as found:
        yield found


@pytest.fixture(scope="module")
def people(
    researcher: Researcher, boss: Researcher, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Cluster]]:
    """A researcher, a user with the role `edit`, one with all rights in the namespace, and a node."""
    with holding(researcher, "edit", tmp_path_factory.mktemp("edit")) as editor:
        yield {"rita": researcher.own, "edit": editor.own, "boss": boss.own, "kubelet": researcher.cluster}
