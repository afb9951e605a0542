"""The claims that a researcher sees: made by the stack, as the API server has them."""

from typing import Any

from builders import Data, pool, stack, team
from cli_builders import Screen
from repository import ROOT

from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import render
from gpu_tenancy.jobs.terms import claims, data, shown
from gpu_tenancy.model.source import Source, to_config

SECTIONS: Data = stack(
    pools={"h100": pool()},
    teams={"a": team(gpus={"h100": {"guaranteed": 8}}, storage={"scratch": {"size": "1Ti"}})},
    datasets={"corpus": {"bucket": "s3://corpora/v2"}, "models": {"bucket": "s3://models", "writable": True}},
)


def _claims() -> list[Any]:
    made = kubernetes_objects(render(ROOT, project="gpu-tenancy", stack="s", config=to_config(Source(SECTIONS))))
    return [dict(item.manifest) for item in made if item.kind == "PersistentVolumeClaim"]


def _pod(name: str, claim: str, phase: str = "Running") -> Any:
    volumes: Any = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}, {"name": "w", "emptyDir": {}}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"volumes": volumes}, "status": {"phase": phase}}


def test_datasets_have_their_buckets_and_all_claims_what_pods_may_do() -> None:
    found = _claims()
    scratch = next(one for one in found if one["metadata"]["name"] == "scratch")
    scratch["status"] = {"phase": "Bound", "capacity": {"storage": "2Ti"}}
    pods = [_pod("train", "corpus"), _pod("eval", "corpus"), _pod("done", "scratch", "Succeeded")]
    rows = claims(found, pods)
    assert [(row.name, row.bucket, row.access, row.state, row.pods) for row in rows] == [
        ("corpus", "s3://corpora/v2", "read", "", ("train", "eval")),
        ("models", "s3://models", "read and write", "", ()),
        ("scratch", "", "one node", "Bound", ()),
    ]
    screen = Screen.of(80, shown(rows))
    assert screen.too_long == []
    assert [line.split() for line in screen.lines[1:4]] == [
        ["corpus", "s3://corpora/v2", "read", "2"],
        ["models", "s3://models", "read", "and", "write"],
        ["scratch", "one", "node", "2Ti", "Bound"],
    ]
    assert data(rows)[2]["size"] == "2Ti"


def test_a_team_without_claims_is_told_so() -> None:
    assert Screen.of(80, shown(claims([], []))).lines[0] == "no claims"
