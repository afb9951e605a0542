"""`tenancy cluster inspect` on recorded clusters: findings of each rule, hidden names, and unevaluated rules."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
import yaml
from builders import GPU
from foreign_clusters import FOREIGN, objects
from live_builders import Data, came
from object_server import serving
from page_reader import Page
from repository import ROOT
from rich.text import Text
from typer.testing import CliRunner

from gpu_tenancy.base.json import Json
from gpu_tenancy.base.output import Output
from gpu_tenancy.cli.main import app
from gpu_tenancy.cluster.bound import breaches
from gpu_tenancy.cluster.reading import Kind, Missing, State, current
from gpu_tenancy.cluster.supply import Facts, Names
from gpu_tenancy.survey import show
from gpu_tenancy.survey.page import page
from gpu_tenancy.survey.survey import KINDS, RULES, Survey, configuration_of, survey

HERE: Final = ROOT / "tests" / "survey"
CASES: Final[list[Data]] = yaml.safe_load((HERE / "survey_cases.yaml").read_text(encoding="utf-8"))


def facts(found: Iterable[Data], *, anonymous: bool = False, missing: Iterable[Missing] = ()) -> Facts:
    by_kind: dict[Any, list[Any]] = defaultdict(list)
    for each in found:
        by_kind[each["kind"]].append(current(each, each["kind"]))
    lacking: dict[Kind, Missing] = {each.kind: each for each in missing}
    state = State({kind: tuple(all_) for kind, all_ in by_kind.items() if kind not in lacking}, lacking)
    nothing: Data = {}
    configuration = configuration_of(next(iter(by_kind["ConfigMap"]), nothing))
    return Facts(replace(state, breaches=breaches(state)), configuration=configuration, name=Names(anonymous=anonymous))


def seen(found: Iterable[Data], **more: Any) -> Survey:
    return survey(facts(found, **more))


def merged(whole: Json, patch: Json) -> Json:
    """A JSON merge patch: https://www.rfc-editor.org/rfc/rfc7386."""
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Json] = dict(whole) if isinstance(whole, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def changed(case: Data) -> list[Data]:
    """The consistent cluster with a change; of several objects of a name, the first one is changed."""
    made = objects()
    for key, patch in case.get("merge", {}).items():
        index = next(at for at, each in enumerate(made) if named(each) == key)
        made[index] = cast("Data", merged(made[index], patch))
    for key in case.get("without", ()):
        made.remove(next(each for each in made if named(each) == key))
    return made + case.get("add", [])


def named(item: Data) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"


def lines(found: Survey, width: int = 80) -> list[str]:
    console = Output(width=width, terminal=True)
    with console.capture() as captured:
        console.print(show.screen(found), highlight=False, no_wrap=False)
    return [Text.from_ansi(line).plain for line in captured.get().splitlines()]


def test_a_consistent_cluster_has_no_findings() -> None:
    found = seen(objects())
    assert [finding.text for broken in found.broken for finding in broken.findings] == []
    assert found.not_evaluated == ()
    (pool,) = found.pools
    assert (pool.flavors, pool.nodes, pool.exist, pool.promised, pool.idle) == (("big",), ("n1", "n2"), 16, 16, 16)


@pytest.mark.parametrize("case", CASES, ids=[f"{case['rule']}-{at}" for at, case in enumerate(CASES)])
def test_a_change_breaks_its_rule_alone(case: Data) -> None:
    found = seen(changed(case))
    texts = [finding.text for broken in found.broken if broken.rule == case["rule"] for finding in broken.findings]
    assert case["says"] in texts
    assert {broken.rule for broken in found.broken} == {case["rule"], *case.get("more", ())}


def _covered(cpu: Data, **spec: Any) -> Data:
    """A change of the cluster: queue red has quota of CPU, and other fields."""
    lines = [{"name": "cpu", **cpu}, {"name": "nvidia.com/gpu", "nominalQuota": 8}]
    groups = [{"flavors": [{"name": "big", "resources": lines}]}]
    return {"merge": {"ClusterQueue/red-queue": {"spec": {"resourceGroups": groups, **spec}}}}


_DAEMON: Final[Data] = {
    "kind": "Pod",
    "metadata": {
        "name": "agent",
        "namespace": "kube-system",
        "ownerReferences": [{"kind": "DaemonSet", "name": "agent"}],
    },
    "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "8"}}}]},
}


def _limited(**rule: Any) -> Data:
    """A change of the cluster: another LimitRange of red."""
    limits = {"kind": "LimitRange", "metadata": {"name": "other", "namespace": "red"}}
    return {"add": [{**limits, "spec": {"limits": [{"type": "Container", **rule}]}}]}


CONFIG: Final = "controller_manager_config.yaml"
_SPARE: Final[Data] = {  # A queue whose quota is only lent.
    "kind": "ClusterQueue",
    "metadata": {"name": "spare"},
    "spec": {
        "cohortName": "all",
        "namespaceSelector": {"matchLabels": {"nobody": "true"}},
        "resourceGroups": [{"flavors": [{"name": "big", "resources": [{"name": "cpu", "nominalQuota": 96}]}]}],
    },
}
_NO_FINDING: Final[dict[str, Data]] = {
    "the nodes' share": _covered({"nominalQuota": 96}),
    "the nodes' share without DaemonSets": {**_covered({"nominalQuota": 92}), "add": [_DAEMON]},
    "CPU is a limit": _covered({"nominalQuota": 10, "borrowingLimit": 0}),
    "never reclaims": _covered({"nominalQuota": 0}, preemption={"reclaimWithinCohort": "Never"}),
    "others of its cohort do not exist": _covered({"nominalQuota": 10}, cohortName="own"),
    "a queue lends and nobody uses it": {"add": [_SPARE]},
    "a maximum of GPUs with a default of 0": _limited(max={GPU: 8}, default={GPU: 0}),
    "a maximum of GPUs for pods": _limited(type="Pod", max={GPU: 8}),
    "Kueue ignores what queues do not have": {
        **_limited(default={"ephemeral-storage": "1Gi"}),
        "merge": {
            "ConfigMap/kueue-manager-config": {"data": {CONFIG: "resources: {quotaCheckStrategy: IgnoreUndeclared}"}}
        },
    },
    "quotas of classes": {
        "merge": {
            "ResourceQuota/gpus": {"spec": {"hard": {"gold.storageclass.storage.k8s.io/requests.storage": "1Ti"}}}
        }
    },
}


@pytest.mark.parametrize("name", _NO_FINDING)
def test_harmless_change_has_no_findings(name: str) -> None:
    assert [broken.rule for broken in seen(changed(_NO_FINDING[name])).broken] == []


def test_each_rule_has_a_case() -> None:
    assert {case["rule"] for case in CASES} == {rule.name for rule in RULES}
    assert {kind for rule in RULES for kind in rule.needs} <= set(KINDS)


@pytest.mark.parametrize("case", CASES, ids=[f"{case['rule']}-{at}" for at, case in enumerate(CASES)])
def test_an_anonymous_survey_has_no_names(case: Data) -> None:
    found = seen([_sealed(each) for each in changed(case)], anonymous=True)
    assert {broken.rule for broken in found.broken} == {case["rule"], *case.get("more", ())}
    assert "secret" not in json.dumps(show.data(found)) + "\n".join(lines(found, 500)) + page(found)


def _sealed(item: Data) -> Data:
    """An object in which each name that a person chose begins with `secret`."""
    chosen = {
        "red", "blue", "green", "n1", "n2", "big", "any", "all", "other", "jobs", "gpus", "small", "second", "usual",
        "red-queue", "blue-queue", "green-queue", "old-queue", "slices", "gangs", "gang", "job", "held", "notebook",
    }  # fmt: skip

    def walk(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: walk(item) if key != "kind" else item for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item) for item in value]
        if isinstance(value, str) and "licence" in value:
            return f"secret {value}"
        return f"secret-{value}" if value in chosen else value

    return cast("Data", walk(item))


@pytest.mark.parametrize("name", FOREIGN)
def test_a_cluster_that_others_made_has_its_findings(name: str) -> None:
    assert {broken.rule for broken in seen(objects(name)).broken} == FOREIGN[name]


def test_the_same_name_is_replaced_by_the_same_one() -> None:
    name = Names(anonymous=True)
    assert [name("red"), name("blue/red"), name("red")] == ["name-1", "name-2/name-1", "name-1"]


def test_rules_on_unreadable_kinds_are_not_evaluated() -> None:
    missing = [Missing(kind, "it", "forbidden", "the administrator") for kind in ("Node", "ClusterQueue")]
    found = seen(objects(), missing=missing)
    assert found.unreadable == {"the administrator": ("Node", "ClusterQueue")}
    assert "promised-beyond-nodes" in found.not_evaluated
    assert "limit-ranges-contradict" not in found.not_evaluated
    assert any(line.startswith("not readable: Node, ClusterQueue; ask the administrator") for line in lines(found))


HIDDEN: Final[dict[Kind, set[str]]] = {
    "Pod": {"used", "idle", "held"},
    "Node": {"exist", "ready", "idle"},
    "ClusterQueue": {"queues", "promised"},
    "ResourceQuota": {"quotas"},
    "Queue": {"gangs"},
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_numbers_from_unreadable_kinds_are_unknown(kind: Kind) -> None:
    gang = {"kind": "Queue", "metadata": {"name": "gangs"}, "spec": {"guarantee": {"resource": {"nvidia.com/gpu": 4}}}}
    data = show.data(seen([*objects(), gang], missing=[Missing(kind, "it", "forbidden", "the administrator")]))
    for numbers in (*data["gpus"], *data["pools"]):
        assert {name for name, value in numbers.items() if value is None} == HIDDEN[kind] & numbers.keys()


def test_evaluates_namespace_rules_with_namespace_rights() -> None:
    partly: list[Kind] = ["LimitRange", "Pod", "LocalQueue", "ResourceQuota"]
    missing = [Missing(kind, "it", "forbidden", "the administrator", partly=True) for kind in partly]
    made = facts(changed(next(case for case in CASES if case["rule"] == "quota-below-queue")))
    found = survey(Facts(State(made.state.objects, {each.kind: each for each in missing})))
    assert {broken.rule for broken in found.broken} == {"quota-below-queue"}
    assert "used-outside-queues" in found.not_evaluated
    assert found.partly == tuple(partly)


def test_kinds_of_operators_that_are_not_installed_hide_no_rule() -> None:
    absent = [Missing(kind, "it", "not served", "") for kind in ("Queue", "PodGroup")]
    assert seen(objects(), missing=absent).not_evaluated == ()


def lent() -> list[Data]:
    """Team red borrows blue's guarantee."""
    borrower = came("night", "red", gpus=16)
    borrower["kind"], borrower["spec"]["queueName"] = "Workload", "jobs"
    admission = borrower["status"]["admission"]
    admission["clusterQueue"] = "red-queue"
    admission["podSetAssignments"][0]["flavors"] = {"nvidia.com/gpu": "big"}
    used = {"name": "big", "resources": [{"name": "nvidia.com/gpu", "total": "16"}]}
    status: Data = {"conditions": [{"type": "Active", "status": "True"}], "flavorsReservation": [used]}
    made = [
        cast("Data", merged(each, {"status": status})) if named(each) == "ClusterQueue/red-queue" else each
        for each in objects()
    ]
    return [*made, borrower]


def test_lent_guarantee_names_who_would_be_preempted() -> None:
    (one,) = seen(lent()).preemptions
    assert one.text == "if queue blue-queue uses its 8 idle guaranteed big GPUs: red/night preempted"


def test_large_cluster_limits_tested_guarantees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_tenancy.survey.survey.WORK", 0)
    found = seen(lent())
    assert (found.preemptions, found.not_simulated) == ((), ("1 idle guarantee: it would take too long",))


def test_queues_of_v1beta1_are_read_as_those_of_v1beta2() -> None:
    def older(item: Data) -> Data:
        if item["kind"] != "ClusterQueue":
            return item
        spec = {**item["spec"], "cohort": item["spec"]["cohortName"], "flavorFungibility": {"whenCanBorrow": "Borrow"}}
        del spec["cohortName"]
        return {**item, "spec": spec}

    queue = facts(map(older, objects())).queues.cluster_queues["red-queue"]
    assert (queue.spec.cohort, queue.invalid) == ("all", "")


def test_the_page_has_every_finding_and_loads_nothing() -> None:
    found = seen([*changed(CASES[0]), *(item for case in CASES for item in case.get("add", ()))])
    read = Page(page(found))
    assert read.loads == []
    assert [cells[-1] for cells in read.tables["Findings"][1:]] == [
        broken.rule for broken in found.broken for _ in broken.findings
    ]
    assert len(found.broken) > 8


def test_the_screen_fits_80_columns() -> None:
    for case in CASES:
        assert max(map(len, lines(seen(changed(case))))) <= 80, case["rule"]


@pytest.mark.process
def test_the_command_reads_any_server(tmp_path: Path) -> None:
    served: dict[tuple[str, str], list[Data] | None] = defaultdict(list)
    for each in objects():
        version = each["apiVersion"].replace("v1beta2", "v1beta1")
        if each["kind"] == "ClusterQueue":
            each["spec"]["cohort"] = each["spec"].pop("cohortName")
        found = served[version, each["kind"]]
        assert found is not None
        found.append(each)
    served["v1", "Pod"] = None
    with serving(tmp_path, served) as kubeconfig:
        result = CliRunner().invoke(app, ["cluster", "inspect", "--kubeconfig", str(kubeconfig), "-o", "json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["operators"] == ["Kueue (serves v1beta1)"]
    assert data["gpus"][0] == {
        "resource": "nvidia.com/gpu", "exist": 16, "ready": 16, "queues": 16, "gangs": 0, "quotas": 32, "idle": None,
        "used": None, "held": None,
    }  # fmt: skip
    # This server has no configuration of Kueue, so Kueue counts all resources.
    assert [finding["rule"] for finding in data["findings"]] == ["default-not-covered"]
    assert "Pod" in data["notReadable"]["a user with the role view in the namespace"]
