from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenancy.model.quantity import (
    add,
    format_amount,
    format_bytes,
    format_cpu,
    is_extended,
    parse_bytes,
    parse_cpu,
    parse_quantity,
    times,
)

AMOUNTS = st.integers(0, 2**62)


@given(AMOUNTS)
def test_bytes_survive_being_written_and_read(amount: int) -> None:
    assert parse_bytes(format_bytes(amount)) == amount


@given(AMOUNTS)
def test_millicores_survive_being_written_and_read(amount: int) -> None:
    assert parse_cpu(format_cpu(amount)) == amount


@given(AMOUNTS)
def test_counts_survive_being_written_and_read(amount: int) -> None:
    assert parse_quantity(format_amount("pods", amount)) == amount


@given(st.integers(1, 10**6), st.sampled_from(["", "k", "M", "Gi", "Ti"]))
def test_writing_is_canonical_so_that_writing_again_changes_nothing(number: int, suffix: str) -> None:
    once = format_bytes(parse_bytes(f"{number}{suffix}"))
    assert format_bytes(parse_bytes(once)) == once


@pytest.mark.parametrize(
    ("resource", "written", "canonical"),
    [
        ("cpu", "2", "2"),
        ("cpu", "2000m", "2"),
        ("cpu", "1.5", "1500m"),
        ("cpu", "0.1", "100m"),
        ("requests.cpu", "1000", "1k"),
        ("memory", "1024Mi", "1Gi"),
        ("memory", "1.5Gi", "1536Mi"),
        ("memory", "0", "0"),
        ("limits.memory", "4096Gi", "4Ti"),
        ("memory", "500M", "500M"),
        ("memory", "1000", "1k"),
        ("requests.storage", "2Ti", "2Ti"),
    ],
)
def test_amounts_are_written_as_the_api_server_writes_them(resource: str, written: str, canonical: str) -> None:
    parse = parse_cpu if resource.endswith("cpu") else parse_bytes
    assert format_amount(resource, parse(written)) == canonical


@pytest.mark.parametrize(
    ("resource", "amount", "written"),
    [("nvidia.com/gpu", 8, "8"), ("requests.nvidia.com/gpu", 1500, "1500"), ("pods", 2000, "2k"), ("pods", 0, "0")],
)
def test_what_is_neither_cpu_nor_bytes_is_a_count(resource: str, amount: int, written: str) -> None:
    assert format_amount(resource, amount) == written


@pytest.mark.parametrize("text", ["", "-1", "1.2.3", ".", "1e3", "4gb", "1/2", "five", "1 Gi", "Gi"])
def test_what_is_no_quantity_is_refused_by_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        parse_quantity(text)


def test_cpu_finer_than_a_millicore_and_bytes_in_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="finer than a thousandth of a cpu"):
        parse_cpu("0.0001")
    with pytest.raises(ValueError, match="no whole number of bytes"):
        parse_bytes("1.5")


def test_a_quantity_is_exact_where_a_float_is_not() -> None:
    assert parse_quantity("0.1") == Fraction(1, 10)


def test_sums_and_multiples_go_resource_by_resource() -> None:
    assert add({"cpu": 1, "gpu": 2}, {}, {"gpu": 3}) == {"cpu": 1, "gpu": 5}
    assert times({"cpu": 2}, 3) == {"cpu": 6}
    assert is_extended("nvidia.com/gpu")
    assert not is_extended("memory")
