"""The resources of clouds that stacks become, by the tables in `cases`."""

from pathlib import Path

import gke_description
import pytest
from object_cases import Case, cases


@pytest.mark.parametrize("case", cases(Path(__file__).parent / "cases"))
def test_resources_of_a_stack(case: Case) -> None:
    program = case.verify()
    for one in program.rendered.registrations if program else ():
        if one.type in gke_description.DESCRIPTION.types and not one.external_id:
            assert gke_description.DESCRIPTION.problems(one.type, one.inputs) == []
