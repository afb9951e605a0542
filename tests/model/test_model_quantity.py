import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenancy.base.quantity import (
    AMOUNT_PATTERN,
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
def test_formatted_quantities_are_canonical(number: int, suffix: str) -> None:
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
def test_other_resources_are_counts(resource: str, amount: int, written: str) -> None:
    assert format_amount(resource, amount) == written


NOT_QUANTITIES = ["", "1.2.3", ".", "4gb", "1/2", "five", "1 Gi", "Gi", "1K", "1ki", "1mi", "1kk", "inf", "nan", "1_0"]
NOT_EXPONENTS = ["e3", "1e", "1e+", "1e1.5", "1e3k", "1e3Gi", "1Ee3", "1e999", "--1", "+-1", "+", "٣"]


@pytest.mark.parametrize("text", [*NOT_QUANTITIES, *NOT_EXPONENTS])
def test_an_invalid_quantity_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
    assert not re.search(AMOUNT_PATTERN, text)


SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "Pi": 2**50,
    "Ei": 2**60,
}


@pytest.mark.parametrize(("suffix", "factor"), SUFFIXES.items())
def test_each_suffix_of_the_api_is_read_with_and_without_a_sign(suffix: str, factor: Fraction | int) -> None:
    assert parse_quantity(f"3{suffix}") == parse_quantity(f"+3{suffix}") == 3 * factor
    assert parse_quantity(f"-3{suffix}") == -3 * factor
    assert parse_quantity(f".5{suffix}") == parse_quantity(f"0.5{suffix}") == Fraction(1, 2) * factor
    assert parse_quantity(f"3.{suffix}") == 3 * factor
    assert re.search(AMOUNT_PATTERN, f"3{suffix}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("1e003", 1000),
        ("12e6", 12_000_000),
        ("1.5e3", 1500),
        ("1.e1", 10),
        ("-2e2", -200),
        ("5e-1", Fraction(1, 2)),
        ("25E-2", Fraction(1, 4)),
        ("1E", 10**18),
        ("1k", 1000),
        (" 8 ", 8),
        (1e-05, Fraction(1, 10**5)),
        (1e22, 10**22),
    ],
)
def test_decimal_exponents_are_read_and_are_not_taken_for_the_suffix_e(text: str | float, value: Fraction) -> None:
    assert parse_quantity(text) == value


def test_a_thousand_gpus_may_be_written_with_a_suffix() -> None:
    assert parse_quantity("1k") == parse_quantity("1e3") == 1000


def test_cpu_finer_than_a_millicore_and_bytes_in_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a whole number of millicores"):
        parse_cpu("0.0001")
    with pytest.raises(ValueError, match="'100u' is not a whole number of millicores"):
        parse_cpu("100u")
    with pytest.raises(ValueError, match="is not a whole number of bytes"):
        parse_bytes("1.5")
    assert parse_cpu("2000u") == parse_cpu("2e-3") == 2
    assert parse_bytes("2000m") == 2


@pytest.mark.parametrize("text", ["-1", "-1e3", "-500m"])
def test_a_negative_amount_of_cpu_or_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is negative"):
        parse_cpu(text)
    with pytest.raises(ValueError, match="is negative"):
        parse_bytes(text)
    assert not re.search(AMOUNT_PATTERN, text)


def test_a_quantity_is_exact_where_a_float_is_not() -> None:
    assert parse_quantity("0.1") == Fraction(1, 10)


def test_sums_and_multiples_go_resource_by_resource() -> None:
    assert add({"cpu": 1, "gpu": 2}, {}, {"gpu": 3}) == {"cpu": 1, "gpu": 5}
    assert times({"cpu": 2}, 3) == {"cpu": 6}
    assert is_extended("nvidia.com/gpu")
    assert not is_extended("memory")
