"""Hosts by which clients outside of the cluster reach servers, in page, comment and terminal output."""

from io import StringIO

from builders import Data, server
from page_reader import Page, well_formed
from review_pages import outlook_of, reviewed, small
from rich.console import Console

from gpu_tenancy.review.comment import comment
from gpu_tenancy.review.figures import differences
from gpu_tenancy.review.figures_tables import tables
from gpu_tenancy.review.page import page
from gpu_tenancy.review.review import Review
from gpu_tenancy.review.text import show_hosts

HOST = "api.ml.example.com"


def exposed(**expose: object) -> Data:
    sections = small()
    network = {"expose": {"hosts": ["*.ml.example.com"], "classes": ["infra/edge"], "reach": "public"}}
    api = server(gpus=2, expose={"host": HOST, "gateway": "infra/edge", **expose})
    sections["teams"]["vision"] |= {"network": network, "serving": {"api": api}}
    return sections


def shown(review: Review, width: int = 120) -> list[str]:
    console = Console(file=StringIO(), width=width, record=True)
    show_hosts(console, review.now)
    return console.export_text().splitlines()


def test_without_hosts_nothing_is_shown() -> None:
    review = reviewed(outlook_of(small()))
    assert "ways-in" not in tables(review)
    assert shown(review) == []
    assert "Reached from outside" not in page(review) + comment(review)


def test_a_host_is_shown_with_its_reach_in_page_comment_and_terminal() -> None:
    review = reviewed(outlook_of(exposed(reach="public", anonymous=True)))
    assert well_formed(page(review))
    assert "Reached from outside of the cluster" in Page(page(review)).words
    assert f"| {HOST} | **public** |" in comment(review)
    assert any(line.split()[:3] == ["vision", HOST, "public"] for line in shown(review))
    assert all(len(line) <= 80 for line in shown(review, 80))
    assert any("public" in line and HOST in line for line in shown(review, 80))


def test_a_host_that_becomes_public_is_a_difference() -> None:
    before = outlook_of(exposed())
    review = reviewed(outlook_of(exposed(reach="public", anonymous=True)), before=before)
    changed = {one.column: one for one in differences(tables(review).values()) if one.table.startswith("Reached")}
    reach = changed["reach"]
    assert (reach.was, reach.now) == ("internal", "public")
