"""The objects of stacks, by the tables in `cases`."""

from pathlib import Path

import pytest
from object_cases import Case, cases


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases"))
def test_objects_of_a_stack(case: Case) -> None:
    case.verify()
