"""Ways in for clients outside of the cluster, as a review lists them and as the page about servers shows them."""

import re

from builders import Data, errors, patched, planned
from repository import ROOT
from test_model_refused import base

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import WayIn, outlook
from gpu_tenancy.model.source import Source
from gpu_tenancy.review.figures_tables import ways_in


def exposed(**chat: object) -> Data:
    return patched(base("exposed"), {"teams": {"a": {"serving": {"chat": {"expose": chat}}}}})


def test_the_page_of_servers_shows_the_error_of_a_public_host() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(teams\.[^`]+is public[^`]+?)\n```", page)
    (problem,) = errors(exposed(reach="public", apiKey=None))
    assert " ".join(shown.split()) == problem.replace("teams.a.", "teams.ml-production.")


def test_a_review_lists_each_host_with_its_reach_and_the_parts_of_its_servers() -> None:
    assert outlook(load(Source(exposed()))).ways_in == (
        WayIn("a", "chat.ml.example.com", "internal", "infra/edge", ("/v1",), "chat-key", (("chat", 95), ("next", 5))),
    )


def test_a_review_lists_hosts_of_notebooks_with_the_token_that_they_ask_for() -> None:
    seen = outlook(load(Source(base("hosted"))))
    assert seen.ways_in[1:] == (
        WayIn("a", "ann.lab.example.com", "internal", "infra/edge", ("/",), "", (("ann", 100),), notebook=True),
        WayIn("a", "ben.lab.example.com", "internal", "infra/edge", ("/",), "", (("ben", 100),), notebook=True),
    )
    cells = [[cell.text for cell in line.cells][-2:] for line in ways_in(seen).rows]
    assert cells == [
        ["no key", "chat 100 %"],
        ["token of the notebook", "notebook ann"],
        ["token of the notebook", "notebook ben"],
    ]


def test_secrets_of_keys_are_among_those_that_a_server_uses() -> None:
    servers = planned(exposed()).teams[0].servers
    used = {one.of for server in servers for one in server.pod.references.variables}
    assert used == {"chat-key"}
