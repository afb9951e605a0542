from collections import Counter

import pytest
import yaml

from model import catalogue
from model.catalogue import allocatable, find_gpu, find_machine, gpus, machines

GIB = 2**30
TABLES = ("gpus", "machines")


@pytest.mark.parametrize(("key", "machine"), machines().items(), ids=lambda value: str(value)[:40])
def test_a_machine_has_gpus_of_a_known_model_or_none_at_all(key: tuple[str, str], machine: catalogue.Machine) -> None:
    assert (machine.gpu is None) == (machine.gpus == 0), key
    assert machine.gpu is None or machine.gpu in gpus()
    assert 4000 <= machine.cpu <= 512_000
    assert 1 * GIB * machine.cpu // 1000 < machine.memory < 32 * GIB * machine.cpu // 1000


@pytest.mark.parametrize("machine", machines().values(), ids=[name for _, name in machines()])
def test_pods_can_have_most_of_a_machine_but_not_all(machine: catalogue.Machine) -> None:
    cpu, memory = allocatable(machine)
    assert machine.cpu * 3 // 4 <= cpu < machine.cpu
    assert machine.memory * 3 // 4 <= memory < machine.memory
    assert cpu % 1000 == memory % GIB == 0


def test_no_machine_of_two_clouds_has_the_same_name() -> None:
    twice = [name for name, count in Counter(name for _, name in machines()).items() if count > 1]
    assert twice == []


def test_no_two_gpus_have_the_same_product_label() -> None:
    assert len({gpu.product for gpu in gpus().values()}) == len(gpus())


@pytest.mark.parametrize("name", gpus())
def test_a_gpus_partitions_fit_its_memory_and_its_seven_slices(name: str) -> None:
    gpu = gpus()[name]
    assert find_gpu(name) == find_gpu(gpu.product) == gpu
    for profile, count in gpu.mig.items():
        slices, gigabytes = (int(part.rstrip("gb")) for part in profile.split("."))
        assert slices * count <= 7, profile
        assert (gigabytes - 1) * count * GIB < gpu.memory, profile  # a profile's name rounds up


@pytest.mark.parametrize("table", TABLES)
def test_every_row_names_its_source_and_says_whether_it_was_read(table: str) -> None:
    text = (catalogue.Path(catalogue.__file__).parent / f"{table}.yaml").read_text()
    for row in yaml.safe_load(text).values():
        assert str(row["source"]).startswith("https://")
        assert row["checked"] in {"read", "remembered"}


def test_what_is_not_in_the_tables_is_not_found() -> None:
    assert find_machine("p99.metal") is None
    assert find_gpu("v100") is None
