"""Content of the page of `tenancy ui`, for made-up clusters."""

import re

from live_builders import HIDDEN_QUEUES, cluster_queue, cpu_job, local_queue, state, with_cpu, workload
from page_reader import Page
from ui_served import SCRIPT, busy, job, research

from gpu_tenancy.cluster.reading import Missing
from gpu_tenancy.ui.board import Board, board_of
from gpu_tenancy.ui.page import MOST, page, sections

NODES = Missing("Node", "free capacity of nodes", "you may not list nodes in the whole cluster", "an admin")


def read(board: Board, name: str) -> Page:
    return Page(sections(board)[name])


def test_queue_shows_places_and_borrowed_quota() -> None:
    board = research("late", "early")
    (title, rows), *_ = read(board, "pending").tables.items()
    assert title == "Pending: 2 jobs"
    assert [cells[:3] for cells in rows[1:]] == [
        ["late: why is it in this state?", "8 nvidia.com/gpu", "pending, place 1"],
        ["early: why is it in this state?", "8 nvidia.com/gpu", "pending, place 2"],
    ]
    assert "queue research borrows 4 of its 12 a100 nvidia.com/gpu" in read(board, "pending").words
    assert "Admitted: 2 jobs" in read(board, "admitted").tables


def test_tree_shows_cohorts_teams_and_numbers() -> None:
    found = read(research("late"), "tree")
    assert found.pictures == [
        "research, a100: 12 used of 8, limit 32; 4 borrowed, 8 pending",
        "speech, a100: 4 used of 8, limit 32; none pending",
    ]
    assert found.words.index("company") < found.words.index("org") < found.words.index("research")
    assert "unassigned, all teams may borrow: 16 nvidia.com/gpu a100" in found.words


def test_shows_the_largest_job_and_what_is_not_covered() -> None:
    queues = [with_cpu(cluster_queue("research", "org", borrowingLimit=8), 10)]
    queues.append(with_cpu(cluster_queue("speech", "org", used=16, borrowingLimit=8), 64))
    board = board_of(state(ClusterQueue=queues, Cohort=[], Workload=[workload(cpu_job("wide"))]), "research", ())
    (shares, *_) = (rows for title, rows in read(board, "usage").tables.items() if title.startswith("Shares"))
    assert shares[1][:5] == ["research", "a100", "nvidia.com/gpu", "8", "10 CPUs"]
    assert "wide pending: needs 22 CPUs more than research is guaranteed (10)" in read(board, "pending").words


def test_nodes_are_shown_by_flavor_and_one_by_one() -> None:
    found = read(research(), "nodes")
    assert found.tables["Nodes by flavor"][1] == [
        "a100", "2", "1 ready, 1 not ready", "16 nvidia.com/gpu", "8 nvidia.com/gpu"
    ]  # fmt: skip
    assert found.tables["Nodes"][1] == ["n1", "a100", "ready", "8 nvidia.com/gpu", "8 nvidia.com/gpu"]


def test_what_a_person_may_not_read_is_said_in_its_section() -> None:
    board = board_of(state((HIDDEN_QUEUES, NODES), ClusterQueue=[], Node=[]), "research", ())
    assert HIDDEN_QUEUES.text in read(board, "tree").words
    assert NODES.text in read(board, "nodes").words
    assert "Jobs and servers: 0" in read(board, "jobs").words


def test_jobs_of_all_teams_have_their_namespace() -> None:
    board = board_of(busy("late"), "", None)
    assert "research/late" in read(board, "pending").words
    assert "tenancy ui TEAM" in read(board, "jobs").words


def test_a_long_queue_is_cut_and_says_how_many_more_there_are() -> None:
    board = board_of(
        busy(*(f"w{at}" for at in range(MOST + 20))), "research", tuple(job(f"j{at}") for at in range(130))
    )
    found = sections(board)
    assert found["pending"].count("<tr data-row") == MOST == found["jobs"].count("<tr data-row")
    assert "and 20 more; tenancy queue research lists all" in Page(found["pending"]).words
    assert "and 30 more; tenancy queue research -v lists all" in Page(found["jobs"]).words


def test_texts_of_the_cluster_are_no_markup() -> None:
    """The API server validates names; labels are not names everywhere."""
    board = board_of(state(LocalQueue=[local_queue("research")]), "research", (job(SCRIPT),))
    assert "<img" not in sections(board)["jobs"]


def test_content_policy_allows_only_the_pages_script() -> None:
    text, policy = page("research", "https://cluster", sections(research()), "12:00")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", text)[0] == "data:,"
    assert not re.search(r"(?:src|href)=\"(?!#|data:,)", text)
