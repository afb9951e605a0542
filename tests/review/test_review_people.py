"""A review shows who has which role, and its verdict begins with what people gain and lose."""

from typing import Any

import pytest
from builders import EKS, PROVIDED, Data
from review_pages import outlook_of, reviewed, small

from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.reasons import access_gained, access_lost


def with_members(people: Data | None = None, **members: Any) -> Data:
    """The smallest stack, with the members of one team."""
    sections = small()
    sections["teams"]["vision"]["members"] = members
    return {**sections, "people": people or {}}


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"viewers": ["group:a"]}, "1 group gains read access in vision (group:a)"),
        ({"researchers": ["user:a", "user:b"]}, "2 users gain exec in vision (user:a, user:b)"),
        ({"leads": ["group:a"]}, "1 group gains Secrets and exec in vision (group:a)"),
        (
            {"researchers": ["group:a", "user:b", "serviceaccount:ci/robot"]},
            "3 people gain exec in vision (group:a, serviceaccount:ci/robot, user:b)",
        ),
    ],
)
def test_gained_access_comes_first_and_needs_review(members: Data, reason: str) -> None:
    review = reviewed(outlook_of(with_members(**members)), before=outlook_of(small()))
    assert review.verdict.title == "Review needed"
    assert review.verdict.sentences[0] == reason
    assert next(line for line in comment(review).splitlines() if line.startswith("- ")).startswith(f"- {reason[:12]}")


def test_lost_access_comes_first() -> None:
    before = outlook_of(with_members(leads=["group:a"], researchers=["user:rosa"]))
    now = outlook_of(with_members(researchers=["group:a"]))
    verdict = reviewed(now, before=before).verdict
    assert verdict.title == "OK"
    assert verdict.sentences[:2] == (
        "1 group loses Secrets in vision (group:a)",
        "1 user loses all access in vision (user:rosa)",
    )


def test_administrators_and_auditors_have_rights_in_the_cluster() -> None:
    now = outlook_of(with_members({"admins": ["group:a"], "auditors": ["group:b"]}))
    assert access_gained(outlook_of(small()), now) == (
        "1 group gains cluster-admin, Secrets and exec in the cluster (group:a)",
        "1 group gains read access in the cluster (group:b)",
    )


def test_members_of_a_cohort_gain_access_to_all_its_teams_at_once() -> None:
    sections = small()
    sections["cohorts"]["org"] = {"members": {"researchers": ["group:a"]}}
    [reason] = access_gained(outlook_of(small()), outlook_of(sections))
    assert reason == f"1 group gains exec in {', '.join(sorted(sections['teams']))} (group:a)"


def test_renamed_people_change_no_access() -> None:
    before = outlook_of(with_members(researchers=["group:a"]))
    now = outlook_of(with_members({"names": {"scientists": "group:a"}}, researchers=["scientists"]))
    assert access_gained(before, now) == access_lost(before, now) == ()


def test_people_are_listed_by_team_and_role() -> None:
    sections = with_members({"admins": ["group:platform"]}, leads=["user:rosa"], viewers=["group:a", "group:b"])
    review = reviewed(outlook_of(sections))
    rows = [tuple(cell.text for cell in row.cells) for row in tables(review)["people"].rows]
    assert rows == [
        ("whole cluster", "admin", "group:platform"),
        ("vision", "lead", "user:rosa"),
        ("vision", "viewer", "group:a, group:b"),
    ]
    assert "| **vision** | lead | user:rosa |" in comment(review)
    assert "People" not in comment(reviewed(outlook_of(small())))


def test_a_robot_gains_access_once_and_another_subject_is_another_robot() -> None:
    def with_subject(branch: str) -> Data:
        sections = small()
        robot = {"role": "researcher", "subject": f"repo:example/vision:ref:refs/heads/{branch}"}
        sections["teams"]["vision"]["serviceAccounts"] = {"ci": robot}
        provider = "arn:aws:iam::111122223333:oidc-provider/token.actions.githubusercontent.com"
        return {**sections, "cluster": {**EKS, **PROVIDED, "identityProvider": provider}}

    before, now = outlook_of(with_subject("main")), outlook_of(with_subject("dev"))
    gained, lost = access_gained(before, now), access_lost(before, now)
    assert gained == (
        "1 service account gains exec in vision (serviceaccount:vision/ci (repo:example/vision:ref:refs/heads/dev))",
    )
    assert lost == (
        (
            "1 service account loses all access in vision"
            " (serviceaccount:vision/ci (repo:example/vision:ref:refs/heads/main))"
        ),
    )
