from pathlib import Path

import pytest


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """A file of applied objects that does not exist yet."""
    return tmp_path / "inventory.json"
