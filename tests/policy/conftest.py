"""Packs as processes, one of each for the whole run."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from repository import ROOT

from document import PACKS
from gpu_tenancy.packs.process import Client, pack_process


@pytest.fixture(scope="session")
def packs() -> Iterator[dict[str, Client]]:
    """Each of our packs by folder name, in a process as Pulumi starts it."""
    with ExitStack() as running:
        yield {name: running.enter_context(pack_process(ROOT / "policy" / name)) for name in PACKS}
