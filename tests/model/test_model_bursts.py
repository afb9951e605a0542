"""What is said beforehand of a server whose burst is on spot nodes."""

import re
from typing import Any

import pytest
import yaml
from builders import PROVIDED, Data, planned
from repository import ROOT

from gpu_tenancy.model.load import load
from gpu_tenancy.model.outlook import outlook
from gpu_tenancy.model.source import Source

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
PLACE = "teams.ml-serving.serving.model-server.burst: "


def of_page(cluster: Data | None = None, **fields: Any) -> Data:
    (block,) = (one for one in re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL) if "burst:" in one)
    sections = {key.removeprefix("gpu-tenancy:"): value for key, value in yaml.safe_load(block).items()}
    sections["cluster"] = {**PROVIDED, "cloud": "existing", **(cluster or sections["cluster"])}
    sections["teams"]["ml-serving"]["serving"]["model-server"].update(fields)
    return sections


def warnings(sections: Data) -> tuple[str, ...]:
    return outlook(load(Source(sections))).server_warnings


def test_the_page_of_servers_shows_what_is_lost_with_spot_nodes() -> None:
    (shown,) = re.findall(r"```text\n(teams\.[^`]+takes a node[^`]+)\n```", PAGE)
    assert warnings(of_page()) == tuple(shown.splitlines())


@pytest.mark.parametrize(
    ("provider", "drain", "said"),
    [
        ("aws", "105s", None),
        ("gcp", "10s", "15 s - 15 s until no proxy sends requests = 0 s, but drain is 10s; expect that"),
        ("azure", "30s", "= 15 s, but drain is 30s; set drain to at most 15s, or expect that"),
        ("", "2m", None),
        ("aws", None, None),
    ],
)
def test_a_drain_that_does_not_fit_the_notice_of_the_cloud_is_named(
    provider: str, drain: str | None, said: str | None
) -> None:
    cluster = {"provider": provider} if provider else {"cloud": "existing"}
    late = [one for one in warnings(of_page(cluster, drain=drain)) if "takes a node" in one]
    assert len(late) == (said is not None)
    assert all(one.startswith(PLACE) and str(said) in one for one in late)


@pytest.mark.parametrize(
    ("load_", "said"),
    [
        (None, "40 of 50 replicas remain; set load of the server to see what they carry"),
        ({"rate": "8000/s", "perReplica": "220/s"}, "which carry 8,000/s of the load of 8,000/s"),
    ],
)
def test_what_the_base_carries_is_said_with_and_without_a_load(load_: Data | None, said: str) -> None:
    (remains,) = warnings(of_page(load=load_, drain=None))
    assert remains.startswith(f"{PLACE}without flavor l4-spot, ")
    assert remains.endswith(said)


def test_the_burst_is_a_row_of_the_summary_with_its_own_limit() -> None:
    base, burst = outlook(load(Source(of_page()))).serving
    assert (burst.name, burst.flavor, burst.replicas.maximum, burst.limit) == ("model-server-burst", "l4-spot", 10, 10)
    assert (base.flavor, base.replicas.maximum, base.surge) == ("l4", 40, 1)


def test_alerts_on_what_an_engine_measures_are_those_of_the_service() -> None:
    measured = {"metrics": {"latency": "seconds", "waiting": "queue", "running": "running"}}
    sections = of_page(serviceLevel={"latency": "2s"}, **measured)
    observed = planned({**sections, "operators": {"prometheus": "installed"}}).observability
    assert observed
    labels = [rule.get("labels", {}) for group in observed.rules for rule in group["rules"]]
    assert {one["server"] for one in labels if "server" in one} == {"model-server"}
