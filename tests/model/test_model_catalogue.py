"""The catalogue of machines and GPUs, its sources and its age."""

import copy
import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from pydantic import ValidationError
from repository import ROOT

from gpu_tenancy.model import catalogue
from gpu_tenancy.model.catalogue import (
    PRODUCT_LABELS,
    CloudTable,
    Gpu,
    Machine,
    allocatable,
    cloud_tables,
    find_gpu,
    find_machine,
    gpus,
    machines,
    price_table,
)
from gpu_tenancy.model.catalogue.releases import (
    OLD,
    aging,
    cloud_charts,
    dated_facts,
    kubernetes_versions,
    running_version,
    support_note,
)
from gpu_tenancy.model.yaml import read_table

GIB: Final = 2**30
CLOUDS: Final = ("aws", "azure", "gcp")
LEAST: Final = {"aws": 25, "azure": 25, "gcp": 20}
HERE: Final = Path(catalogue.__file__).parent
FILES: Final = {"gpus": HERE / "gpus.yaml", **{cloud: HERE / "machines" / f"{cloud}.yaml" for cloud in CLOUDS}}

every_file = pytest.mark.parametrize("file", FILES)


def every_machine(check: Callable[[Machine], None]) -> Callable[[], None]:
    """A test of all machines, which names each failed one."""

    def checked() -> None:
        failed: list[str] = []
        for (cloud, name), machine in machines().items():
            try:
                check(machine)
            except AssertionError as error:
                failed.append(f"{cloud} {name}: {error}")
        assert not failed, "\n".join(failed)

    checked.__name__ = check.__name__
    return checked


@cache
def _read(file: str) -> Any:
    return yaml.load(FILES[file].read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def read(file: str) -> Any:
    """A table as plain data, by libyaml: Python's own parser takes a second for a cloud's machines."""
    return copy.deepcopy(_read(file))


def values(node: Any, key: str) -> Iterator[Any]:
    """Every value of a key, anywhere in a table's sections."""
    if isinstance(node, dict):
        sections = cast("dict[str, Any]", node)
        yield from (value for name, value in sections.items() if name == key)
        for value in sections.values():
            yield from values(value, key)


def test_each_cloud_has_its_file_and_enough_machines_in_it() -> None:
    assert tuple(cloud_tables()) == CLOUDS
    with_gpus = Counter(machine.cloud for machine in machines().values() if machine.gpus)
    without = Counter(machine.cloud for machine in machines().values() if not machine.gpus)
    assert {cloud: with_gpus[cloud] >= value for cloud, value in LEAST.items()} == dict.fromkeys(LEAST, True)
    assert min(without[cloud] for cloud in CLOUDS) >= 3


@pytest.mark.parametrize(
    ("cloud", "models"),
    {
        "aws": "t4 t4g a10g l4 l40s v100-16gb a100-40gb a100-80gb h100-80gb h200 b200 b300 gb200",
        "azure": "t4 a10 v100-32gb a100-40gb a100-80gb a100-80gb-pcie h100-80gb h100-nvl h200 gb200 gb300 mi300x-vf",
        "gcp": "t4 p4 v100-16gb l4 a100-40gb a100-80gb h100-80gb h200 b200 gb200 rtx-pro-6000",
    }.items(),
)
def test_no_model_of_gpu_that_a_cloud_has_is_missing(cloud: str, models: str) -> None:
    assert set(models.split()) <= {machine.gpu for machine in machines().values() if machine.cloud == cloud}


@every_machine
def test_a_machine_is_plausible(machine: Machine) -> None:
    assert (machine.gpu is None) == (machine.gpus == 0)
    assert machine.gpu is None or machine.gpu in gpus()
    assert machine.gpus in {0, 1, 2, 4, 8, 16}
    assert machine.cpu % 2000 == 0
    assert 4000 <= machine.cpu <= 448_000
    assert machine.memory % GIB == 0
    assert 1.5 * GIB < machine.memory * 1000 / machine.cpu < 32 * GIB
    assert machine.memory > machine.gpus * 7 * GIB
    assert (machine.accelerator is not None) == (machine.cloud == "gcp" and machine.gpus > 0)


@every_machine
def test_a_machine_is_found_by_its_name_in_its_cloud_alone(machine: Machine) -> None:
    others = [cloud for cloud in CLOUDS if cloud != machine.cloud]
    assert find_machine(machine.name) is find_machine(machine.name, machine.cloud) is machine
    assert [find_machine(machine.name, cloud) for cloud in others] == [None, None]


@every_machine
def test_machine_type_is_its_name_except_for_n1(machine: Machine) -> None:
    attached = re.fullmatch(r"(n1-standard-\d+)-([a-z]\d+)-(\d+)", machine.name)
    assert machine.type == (attached[1] if attached else machine.name)
    if attached:
        assert machine.accelerator == f"nvidia-tesla-{attached[2]}"
        assert machine.gpus == int(attached[3])


def test_each_accelerator_of_gke_is_one_model_of_gpu() -> None:
    pairs = {(machine.accelerator, machine.gpu) for machine in machines().values() if machine.accelerator}
    assert len({accelerator for accelerator, _ in pairs}) == len(pairs)
    # The H100s of A3 Mega have a name of their own: no other two names mean the same GPU.
    assert [gpu for gpu, count in Counter(gpu for _, gpu in pairs).items() if count > 1] == ["h100-80gb"]


ARM: Final = re.compile(r"g5g\.|p6e-|m7g\.|a4x-|.*_GB[23]00_")


@every_machine
def test_arm64_is_graviton_and_grace(machine: Machine) -> None:
    assert machine.architecture == ("arm64" if ARM.match(machine.name) else "amd64")


FABRICS: Final = {"aws": "efa", "azure": "infiniband", "gcp": "gpudirect-(tcpxo?|rdma)"}


@every_machine
def test_a_fabric_is_its_clouds_and_joins_gpus(machine: Machine) -> None:
    if machine.network is None or machine.network.fabric is None:
        return
    assert re.fullmatch(FABRICS[machine.cloud], machine.network.fabric)
    assert machine.gpus > 0
    assert 1 <= machine.network.interfaces <= 32
    assert 10 < machine.network.gbps / machine.network.interfaces <= 800


@pytest.mark.parametrize(
    ("name", "fabric", "interfaces"),
    [
        ("p4d.24xlarge", "efa", 4),
        ("p5.48xlarge", "efa", 32),
        ("p5en.48xlarge", "efa", 16),
        ("p6-b200.48xlarge", "efa", 8),
        ("a3-highgpu-8g", "gpudirect-tcpx", 4),
        ("a3-megagpu-8g", "gpudirect-tcpxo", 8),
        ("a3-ultragpu-8g", "gpudirect-rdma", 8),
        ("Standard_ND96isr_H100_v5", "infiniband", 8),
        ("Standard_ND96isr_MI300X_v5", "infiniband", 8),
    ],
)
def test_the_machines_for_training_have_their_fabric(name: str, fabric: str, interfaces: int) -> None:
    machine = find_machine(name)
    assert machine
    assert machine.network
    assert (machine.network.fabric, machine.network.interfaces) == (fabric, interfaces)


@every_machine
def test_a_price_is_plausible(machine: Machine) -> None:
    price = machine.price
    if price.on_demand is not None:
        least, most = (0.04, 2) if machine.gpus else (0.03, 0.09)
        assert least < price.on_demand * 1000 / machine.cpu < most
        assert price.spot is None or 0.1 * price.on_demand < price.spot < price.on_demand
    assert price.spot is None or price.on_demand is not None
    assert price.region != price_table(machine.cloud).region
    assert price.region is None or price.on_demand is not None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_most_prices_of_a_cloud_are_known(cloud: str) -> None:
    rows = [machine for machine in machines().values() if machine.cloud == cloud]
    assert sum(machine.price.on_demand is not None for machine in rows) > len(rows) * 2 / 3
    assert price_table(cloud).currency == "USD"


def test_an_unknown_price_is_none_and_not_0() -> None:
    machine = find_machine("p5e.48xlarge")
    assert machine
    assert machine.price == catalogue.Price()


@every_machine
def test_pods_can_have_most_of_a_machine_but_not_all(machine: Machine) -> None:
    cpu, memory = allocatable(machine)
    assert machine.cpu * 0.7 <= cpu < machine.cpu
    assert machine.memory * 0.7 <= memory < machine.memory
    assert cpu % 1000 == memory % GIB == 0


@pytest.mark.parametrize(
    ("name", "cpu", "gib"),
    [
        # 192 cpus less 60 + 10 + 10 + 470 millicores; 2048 x 0.935 less 255Mi + 250 x 11Mi and 100Mi.
        ("p5.48xlarge", 191, 1911),
        # 4 cpus: 110 pods, so 255Mi + 110 x 11Mi and 100Mi of 16 x 0.935.
        ("g4dn.xlarge", 3, 13),
        # 208 cpus less 60 + 10 + 10 + 510; 1872 x 0.93 less 1 + 0.8 + 0.8 + 6.72 + 34.88 and 100Mi.
        ("a3-highgpu-8g", 207, 1696),
        # 96 cpus less 60 + 40 + 40 + 920; 1900 x 0.925 less 50 MB + 250 x 20 MB and 100Mi.
        ("Standard_ND96isr_H100_v5", 94, 1752),
    ],
)
def test_pods_can_have_what_the_clouds_own_formula_leaves(name: str, cpu: int, gib: int) -> None:
    machine = find_machine(name)
    assert machine
    assert allocatable(machine) == (cpu * 1000, gib * GIB)


def test_aks_keeps_a_quarter_of_a_small_machine_at_the_most() -> None:
    small = Machine(name="small", cloud="azure", cpu=2000, memory=8 * GIB)  # 5.05 GB would be kept for 250 pods
    assert allocatable(small)[1] == 5 * GIB  # 8 x 0.925 less 2 and 100Mi


@pytest.mark.parametrize(("cpu", "gib"), [(4, 16), (32, 128), (192, 2048)])
def test_own_machines_promise_the_least_of_all_clouds(cpu: int, gib: int) -> None:
    sizes = [allocatable(Machine(name="own", cloud=cloud, cpu=cpu * 1000, memory=gib * GIB)) for cloud in ("", *CLOUDS)]
    assert sizes[0] == (min(millicores for millicores, _ in sizes[1:]), min(size for _, size in sizes[1:]))


@every_file
def test_every_source_is_a_page_and_every_date_a_day_that_was(file: str) -> None:
    table = read(file)
    sources, dates = list(values(table, "source")), list(values(table, "date"))
    assert len(sources) == len(dates) >= 4
    assert all(re.fullmatch(r"https://[\w.-]+/\S+", source) for source in sources)
    assert all(type(date) is dt.date and dt.date(2020, 1, 1) < date <= dt.datetime.now(dt.UTC).date() for date in dates)
    assert set(values(table, "checked")) <= {"read", "remembered"}


@pytest.mark.parametrize("name", gpus())
def test_a_gpu_is_plausible(name: str) -> None:
    gpu = gpus()[name]
    assert find_gpu(name) == find_gpu(gpu.product) == gpu
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", gpu.product)
    assert gpu.product.startswith("AMD") == (gpu.resource == "amd.com/gpu") == (gpu.architecture == "cdna3")
    assert gpu.resource.partition("/")[0] in PRODUCT_LABELS
    assert 8 * GIB <= gpu.memory <= 300 * GIB
    matches = re.search(r"(\d+)gb", name) or re.search(r"(\d+)GB", gpu.product)
    assert matches is None or gpu.memory == int(matches[1]) * GIB


@pytest.mark.parametrize("name", [name for name, gpu in gpus().items() if gpu.mig])
def test_a_gpus_partitions_fit_its_memory_and_its_slices(name: str) -> None:
    gpu = gpus()[name]
    parsed = [(profile, re.fullmatch(r"(\d)g\.(\d+)gb", profile), count) for profile, count in gpu.mig.items()]
    slices = max(int(match[1]) for _, match, _ in parsed if match)
    for profile, match, count in parsed:
        assert match, profile
        assert int(match[1]) * count <= slices, profile
        assert (int(match[2]) - 1) * count * GIB < gpu.memory, profile  # a profile's name rounds up
    assert gpu.mig[f"{slices}g.{gpu.memory // GIB}gb"] == 1


def test_gpus_are_cut_where_the_chip_can_be() -> None:
    whole = "p4 v100-16gb v100-32gb t4 t4g a10 a10g l4 l40s rtx-pro-4500 mi300x mi300x-vf"
    assert {name for name, gpu in gpus().items() if not gpu.mig} == set(whole.split())


def test_unknown_names_are_not_found() -> None:
    assert find_machine("p99.metal") is None
    assert find_gpu("v999") is None


NOTHING: Final = object()
MISTAKES: Final = read_table(Path(__file__).with_name("mistakes.yaml"))


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_clouds_table_is_refused(mistake: dict[str, Any]) -> None:
    table = read("aws")
    CloudTable.model_validate(read("aws"))
    *above, key = mistake["at"].split("/")
    broken = table
    for step in above:
        broken = broken[step]
    if "value" in mistake:
        broken[key] = mistake["value"]
    else:
        del broken[key]
    with pytest.raises(ValidationError):
        CloudTable.model_validate(table)


@pytest.mark.parametrize(
    "mistake",
    [
        *({"prodcut": "x"}, {"product": None}, {"mig": {"1g.10gb": 0}}, {"source": "book"}, {"checked": "sure"}),
        *({key: NOTHING} for key in ("product", "memory", "architecture", "source", "date", "checked")),
    ],
)
def test_a_mistake_in_the_gpus_is_refused(mistake: dict[str, Any]) -> None:
    good = read("gpus")["h100-80gb"]
    assert Gpu.model_validate(good) == gpus()["h100-80gb"]
    with pytest.raises(ValidationError):
        Gpu.model_validate({key: value for key, value in (good | mistake).items() if value is not NOTHING})


# The age of the catalogue.

TODAY = dt.date(2026, 11, 24)
SCALER = cloud_charts()["cluster-autoscaler"]


def test_every_fact_ages_and_the_day_after_half_a_year_is_old() -> None:
    facts = dated_facts()
    tables = {fact.table.partition("/")[0] for fact in facts}
    assert tables >= {"machines", "operators", "releases", "gpus", "kubernetes"}
    for fact in facts:
        assert not fact.is_old(fact.date + OLD)
        assert fact.is_old(fact.date + OLD + dt.timedelta(days=1))


EKS_UPGRADES: Final = "then EKS upgrades the cluster by itself, because cluster.create.support is standard"
COSTS: Final = "extended support costs 0.50 USD more per cluster-hour, for 12 months"


@pytest.mark.parametrize(
    ("service", "version", "today", "extended", "told"),
    [
        ("aws", "1.34", dt.date(2026, 12, 1), False, f"standard support ends on 2026-12-02; {EKS_UPGRADES} ({COSTS})"),
        ("aws", "1.34", dt.date(2026, 12, 3), False, f"standard support ended on 2026-12-02; {EKS_UPGRADES} ({COSTS})"),
        ("aws", "1.34", dt.date(2026, 12, 3), True, f"ended on 2026-12-02; {COSTS}; set cluster.create.version"),
        ("aws", "1.29", dt.date(2026, 12, 3), False, "standard support ended before 2026-07-29; then EKS upgrades"),
        ("aws", "1.39", dt.date(2026, 12, 3), False, "1.39 is newer than the catalogue's versions (1.36, 2026-08-22)"),
        ("gcp", "1.34", dt.date(2026, 12, 3), False,
         "(the Extended channel costs 0.50 USD more per cluster-hour, for 10"),
        ("azure", "1.34", dt.date(2026, 12, 3), False, "creates no cluster with it (long-term support costs 0.50 USD"),
        ("aws", "1.36", dt.date(2026, 12, 3), False, ""),
        ("aws", None, dt.date(2026, 12, 3), False, ""),
        ("existing", "1.29", dt.date(2026, 12, 3), False, ""),
    ],
)  # fmt: skip
def test_a_preview_names_the_end_of_support(
    service: str, version: str | None, today: dt.date, *, extended: bool, told: str
) -> None:
    note = support_note(service, version, today, extended=extended)
    assert told in note
    assert bool(told) == bool(note)


@pytest.mark.parametrize(
    ("service", "runs", "compared"),
    [("aws", "v1.36.3", "v1.36.3"), ("gcp", "v1.36.3", ""), ("gcp", "v1.34.9", "v1.34.9")],
)
def test_release_channels_upgrade_beyond_the_stack(service: str, runs: str, compared: str) -> None:
    assert running_version(service, "1.35", runs) == compared


@pytest.mark.parametrize("file", sorted((ROOT / "stacks").glob("Pulumi.*.yaml")), ids=lambda file: file.name)
def test_reference_stacks_have_half_a_year_of_support(file: Path) -> None:
    cluster = cast("dict[str, Any]", yaml.safe_load(file.read_bytes()))["config"]["gpu-tenancy:cluster"]
    if version := cluster.get("create", {}).get("version"):
        table = kubernetes_versions()[cluster["cloud"]]
        assert table.versions[version] > table.date + OLD


def test_a_preview_names_only_old_facts_that_the_stack_uses() -> None:
    later = SCALER.date + OLD + dt.timedelta(days=1)
    assert any("cluster-autoscaler" in note for note in aging("aws", ["cluster-autoscaler"], later))
    assert not any("cluster-autoscaler" in note for note in aging("aws", ["kueue"], later))
    prices = next(fact for fact in dated_facts() if fact.name == "machines/azure prices")
    assert any(prices.name in note for note in aging("azure", [], prices.date + OLD + dt.timedelta(days=1)))
    assert not any(prices.name in note for note in aging("aws", [], prices.date + OLD + dt.timedelta(days=1)))
    assert not replace(prices, date=TODAY).is_old(TODAY)
