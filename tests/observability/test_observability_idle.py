"""When a GPU of a pod was last busy, by the recording rules of `idle`, in Prometheus' own promtool."""

from typing import Any, Final

import pytest
from builders import Data
from observability_builders import asks, firing, observed, panels, passes, watched

pytestmark = pytest.mark.process

_UTIL: Final = "DCGM_FI_DEV_GPU_UTIL"
_ENGINE: Final = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def _sections(**idle: Any) -> Data:
    found = watched(operators={"prometheus": "installed"})
    return {**found, "idle": {"then": "requeue", **idle}}


def _metric(values: Any, name: str = _UTIL, pod: str = "p", scraped: str = "gpu-operator", gpu: int = 0) -> Data:
    labels = f'namespace="{scraped}", exported_namespace="a", exported_pod="{pod}", gpu="{gpu}", Hostname="n1"'
    return {f"{name}{{{labels}}}": values}


def _started(values: Any = 0, pod: str = "p") -> Data:
    return {f'kube_pod_start_time{{namespace="a", pod="{pod}"}}': values}


# Minutes idle after 100 minutes, to ten; a world without a value has no series.
CASES: Final[dict[str, tuple[Data, float | None]]] = {
    "idle from the start, after the grace period": ({**_metric(0), **_started()}, 70),
    "busy": ({**_metric(50), **_started()}, 0),
    "busy below the threshold": ({**_metric(4), **_started()}, 70),
    "at the threshold": ({**_metric(5), **_started()}, 0),
    "idle since half of the time": ({**_metric("90x45 0x60"), **_started()}, 50),
    "a minute of work in the last hour": ({**_metric("90x10 0x33 90 0x60"), **_started()}, 50),
    "one of two GPUs is busy": ({**_metric(0), **_metric(90, gpu=1), **_started()}, 0),
    "a partition has engine activity only": ({**_metric(0.5, _ENGINE), **_started()}, 0),
    "a partition is idle": ({**_metric(0.01, _ENGINE), **_started()}, 70),
    "no metrics": (_started(), None),
    "metrics have ended": ({**_metric("0x50 _x60"), **_started()}, None),
    "a short gap of the exporter": ({**_metric("90x15 0x40 _x9 0x60"), **_started()}, 80),
    "a long gap starts again": ({**_metric("90x20 0x20 _x25 0x60"), **_started()}, 0),
    "a gap of kube-state-metrics": ({**_metric("90x15 0x90"), **_started("0x50 _x9 0x60")}, 80),
    "another pod with the name starts again": ({**_metric(0), **_started("0x50 3060x60")}, 20),
    "a team's server cannot make a pod busy": ({**_metric(0), **_metric(90, scraped="b"), **_started()}, 70),
    "a team's server cannot make a pod idle": ({**_metric(0, scraped="b"), **_started()}, None),
}


def _rules(sections: Data) -> list[Any]:
    return [group for group in observed(sections).rules if "idle" in group["name"]]


@pytest.mark.parametrize("name", CASES)
def test_idle_time_begins_after_the_last_work(name: str) -> None:
    world, idle = CASES[name]
    expr = "round((time() - gpu_tenancy:pod_busy_at) / 60, 10)"
    answer: dict[str, float] = {} if idle is None else {'{namespace="a", pod="p"}': idle}
    passes(world, [asks(f"clamp_min({expr}, 0)", "100m", answer)], _rules(_sections()))


def test_each_team_has_its_own_threshold() -> None:
    sections = _sections()
    sections["teams"]["b"]["idle"] = {"below": 2, "grace": "0m"}
    world = {**_metric(3), **_started()}
    world |= {name.replace('"a"', '"b"'): value for name, value in world.items()}
    expr = "clamp_min((time() - gpu_tenancy:pod_busy_at) / 60, 0)"
    expected = {'{namespace="a", pod="p"}': 70.0, '{namespace="b", pod="p"}': 0.0}
    passes(world, [asks(expr, "100m", expected)], _rules(sections))
    sections["teams"]["b"]["idle"] = "off"
    passes(world, [asks(expr, "100m", {'{namespace="a", pod="p"}': 70})], _rules(sections))


def _owned(kind: str = "Job", name: str = "train", priority: str = "ml-high", pod: str = "p") -> Data:
    labels = f'created_by_kind="{kind}", created_by_name="{name}", priority_class="{priority}"'
    return {f'kube_pod_info{{namespace="a", pod="{pod}", node="n1", {labels}}}': 1}


_IDLE: Final = {**_metric(0), **_started()}
# Labels of the alert after 100 minutes, of which 70 idle; 60 are half of `for`.
ALERTS: Final[dict[str, tuple[Data, str]]] = {
    "idle": ({**_IDLE, **_owned()}, 'namespace="a", job="train"'),
    "a pod without an owner": ({**_IDLE, **_owned("", "")}, 'namespace="a", job="p"'),
    "another pod of the gang is busy": (
        {**_IDLE, **_owned(), **_metric(90, pod="q"), **_started(pod="q"), **_owned(pod="q")},
        "",
    ),
    "a server": ({**_IDLE, **_owned("ReplicaSet", "api-5f")}, ""),
    "an excepted job": ({**_IDLE, **_owned(name="nightly")}, ""),
    "an excepted kind": ({**_IDLE, **_owned("RayCluster", "r")}, ""),
    "an excepted priority class": ({**_IDLE, **_owned(priority="urgent")}, ""),
}


@pytest.mark.parametrize("name", ALERTS)
def test_the_alert_comes_before_the_stop(name: str) -> None:
    world, labels = ALERTS[name]
    rules = _rules(_sections(**{"except": ["nightly", "RayCluster", "urgent"]}))
    expected = {f"{{{labels}}}": 1.0} if labels else {}
    passes(world, [asks(firing("GpusIdle"), "100m", expected), asks(firing("GpusIdle"), "85m", {})], rules)
    passes(world, [asks(firing("GpusIdle"), "100m", {})], _rules(_sections(then="notify")))


def test_the_dashboard_of_jobs_has_their_idle_time() -> None:
    (expr,) = (expr for name, expr, _ in panels(observed(_sections())) if name == "gpu-tenancy-training/Idle jobs/A")
    answer = {'{namespace="a", job="train"}': 4200.0}
    passes({**_IDLE, **_owned()}, [asks(expr.replace("$team", "a|b"), "100m", answer)], _rules(_sections()))
