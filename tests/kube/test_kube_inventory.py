from pathlib import Path

import pytest
from cluster_builders import a_config_map

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.kube.inventory import Entry, Inventory
from gpu_tenancy.kube.references import Reference


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "applied" / "local.json"


def an_entry(name: str, wave: int = 0) -> Entry:
    return Entry(Reference.of(a_config_map(name, "ml")), wave, uid="u", digest="d", mark="m")


def test_a_file_that_is_not_there_is_an_empty_inventory(file: Path) -> None:
    assert len(Inventory.load(file)) == 0
    assert not file.exists()


def test_the_inventory_is_read_back(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings", wave=3))
    inventory.save()
    assert Inventory.load(file).get(("", "ConfigMap", "ml", "settings")) == an_entry("settings", wave=3)
    assert [path.name for path in file.parent.iterdir()] == ["local.json"]


def test_the_inventory_is_private(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings"))
    inventory.save()
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_is_written_only_where_something_changed(file: Path) -> None:
    inventory = Inventory(file)
    inventory.put(an_entry("settings"))
    inventory.save()
    file.unlink()
    inventory.put(an_entry("settings"))
    inventory.remove(("", "ConfigMap", "ml", "other"))
    inventory.save()
    assert not file.exists()


def test_the_last_applied_stack_is_listed_first(file: Path) -> None:
    inventory = Inventory(file)
    for name, wave in (("first", 0), ("third", 2), ("second", 1), ("kept", 1)):
        inventory.put(an_entry(name, wave))
    others = inventory.others({an_entry("kept").reference.key})
    assert [one.reference.name for one in others] == ["third", "second", "first"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "Expecting property name"),
        ("[]", "schema must be 1"),
        ('{"schema": 2, "objects": []}', "schema must be 1"),
        ('{"schema": 1}', "invalid entry: "),
        ('{"schema": 1, "objects": [{"kind": "ConfigMap"}]}', "invalid entry: "),
        ('{"schema": 1, "objects": ["settings"]}', "invalid entry: "),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(file: Path, content: str, reason: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(
        ConsoleError, match=rf"local\.json: the inventory of applied objects cannot be used: .*{reason}"
    ):
        Inventory.load(file)
