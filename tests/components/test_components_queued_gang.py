"""A Job that Kueue admits whole and Volcano starts whole."""

from typing import Any, cast

import pytest
from builders import Data, errors, job, stack, team
from components_builders import tenancy


def sections(**fields: Any) -> Data:
    own = job(workers=2, gpus=4, flavor="h100", **fields)
    return stack(teams={"a": team(gpus={"h100": {"guaranteed": 8}}, training={"pair": own})})


def test_its_pods_are_volcanos_and_start_only_when_all_of_them_fit() -> None:
    job = cast("Any", tenancy(sections(gang=True)).only("Job").manifest)
    assert job["spec"]["template"]["spec"]["schedulerName"] == "volcano"
    assert job["metadata"]["annotations"]["scheduling.volcano.sh/group-min-member"] == "2"


def test_it_waits_in_the_teams_queue_as_any_job() -> None:
    job = cast("Any", tenancy(sections(gang=True)).only("Job").manifest)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "a"


def test_other_jobs_are_left_to_the_usual_scheduler() -> None:
    job = cast("Any", tenancy(sections()).only("Job").manifest)
    assert "schedulerName" not in job["spec"]["template"]["spec"]
    assert "scheduling.volcano.sh/group-min-member" not in job["metadata"]["annotations"]


@pytest.mark.parametrize("fields", [{"framework": "pytorch"}, {"scheduler": "volcano"}])
def test_only_an_ordinary_job_can(fields: Data) -> None:
    problems = errors(sections(gang=True, **fields))
    assert problems[0] == (
        "teams.a.training.pair: sets gang, which only applies to framework: job with scheduler: kueue; remove gang"
    )
