"""What tests on a real Kueue share."""

from collections.abc import Iterator

import pytest
from queueing import Queueing
from researchers import Researcher, researching


@pytest.fixture(scope="module")
def researcher(queueing: Queueing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Researcher]:
    """A researcher of the stack `local`."""
    with researching(queueing, tmp_path_factory.mktemp("rita")) as rita:
        yield rita
