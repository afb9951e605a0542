"""A stack's dashboards and alerts, and tests of them with Prometheus' own promtool."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from builders import Data, planned, pool, server, stack, team
from prometheus_tool import promtool
from starts import GUARD

from gpu_tenancy.model.load import load
from gpu_tenancy.model.observability import ObservabilityPlan, observability
from gpu_tenancy.model.plan.costs import gpu_prices
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.source import Source

LATENCY = "inference_latency_p99_seconds"


def watched(**sections: Any) -> Data:
    """A team that trains and one that serves, on H100s."""
    served = team(
        gpus={"h100": {"guaranteed": 4}},
        serving={"api": server(replicas={"min": 1, "max": 4}, scaleOn={"latencyP99": "100ms"})},
    )
    return stack(
        metrics={"latencyP99": LATENCY},
        teams={"a": team(gpus={"h100": {"guaranteed": 8, "limit": 12}}), "b": served},
        **sections,
    )


def budgeted() -> Data:
    """The same, with a budget of team `a`, H100s for 4 dollars an hour, and a service level of class `production`."""
    found = watched(
        operators={"prometheus": "installed"},
        prices={"p5.48xlarge": {"onDemand": 32}},
        priorities={"production": {"value": 1000}},
    )
    found["metrics"]["serviceLevels"] = {"waiting": {"production": {"within": "30m", "share": 90}}}
    found["teams"]["a"]["monthlyBudget"] = 20_000
    return found


def amd(**sections: Any) -> Data:
    mi = {"gpu": "mi300x", "gpusPerNode": 8, "cpu": 90, "memory": "900Gi", "nodes": 2, "resource": "amd.com/gpu"}
    return stack(
        pools={"mi": mi, "cpu": pool("m7i.8xlarge", 3)}, teams={"a": team(gpus={"mi": {"guaranteed": 8}})}, **sections
    )


def two_vendors() -> Data:
    both = team(gpus={"mi": {"guaranteed": 8}, "h100": {"guaranteed": 4}})
    return amd() | {"pools": amd()["pools"] | {"h100": pool("p5.48xlarge", 2)}, "teams": {"a": both}}


def observed(sections: Data) -> ObservabilityPlan:
    servers = tuple(server for team in planned(sections).teams for server in team.servers)
    tree = Tree(load(Source(sections)))
    return observability(tree, servers, gpu_prices(tree))


def panels(plan: ObservabilityPlan) -> Iterator[tuple[str, str, Any]]:
    """Every target with its dashboard and panel: `(uid/panel/refId, expr, target)`."""
    for _, text in plan.dashboards:
        board = json.loads(text)
        for panel in board["panels"]:
            for target in panel.get("targets", []):
                yield f"{board['uid']}/{panel['title']}/{target['refId']}", target["expr"], target


def passes(
    world: dict[str, Any],
    checks: list[Data],
    rules: Sequence[Mapping[str, Any]] = (),
    interval: str = "1m",
    every: str = "1m",
) -> None:
    """Fails with promtool's output unless all expressions and alerts have their answers in a world.

    `interval` is between two samples, `every` between two evaluations, in place of the groups' own intervals.
    """
    samples = max(minutes(check["eval_time"]) for check in checks)
    case: Data = {"interval": interval, "input_series": series(world, samples), "promql_expr_test": []}
    for check in checks:
        case.setdefault("promql_expr_test" if "expr" in check else "alert_rule_test", []).append(check)
    tests = {"rule_files": ["rules.json"], "evaluation_interval": every, "tests": [case]}
    with TemporaryDirectory() as folder:
        Path(folder, "rules.json").write_text(json.dumps({"groups": list(rules)}))
        Path(folder, "tests.json").write_text(json.dumps(tests))
        command = [str(promtool()), "test", "rules", "tests.json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=GUARD, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def minutes(at: str) -> int:
    return int(at[:-1]) * {"m": 1, "h": 60}[at[-1]]


def series(world: dict[str, Any], samples: int) -> list[Data]:
    """Promtool's series: constant for a number, a text as written."""

    def values(value: Any) -> str:
        if value == "Inf":  # which promtool takes in a list alone
            return " ".join(["Inf"] * samples)
        return value if isinstance(value, str) else f"{value}x{samples}"

    return [{"series": name, "values": values(value)} for name, value in world.items()]


def firing(name: str) -> str:
    """The firing alert, with its own labels."""
    return f'sum without (alertname, alertstate, severity) (ALERTS{{alertname="{name}", alertstate="firing"}})'


def asks(expr: str, at: str, answer: dict[str, float]) -> Data:
    """Promtool's test of an expression at a moment: the value of each set of labels."""
    samples = [{"labels": labels, "value": value} for labels, value in answer.items()]
    return {"expr": expr, "eval_time": at, "exp_samples": samples}
