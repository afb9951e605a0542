"""The declared admission policies of a stack."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import planned, pool, stack, team
from components_builders import Program, tenancy
from cpu_stacks import CPUS

from components import guards as sources
from components.guards import DEFAULTS, mutation
from components.guards import spec as filled
from components.guards.cel import KINDS, literal, queue_place, sizes
from gpu_tenancy.model.yaml import read_table

PODS = [
    "amount",
    "devices",
    "grace",
    "kueue-metadata",
    "queue",
    "ratio",
    "release",
    "scheduling",
    "toleration",
]
OBJECTS = [
    *("count", "disruption", "expose", "namespace", "network", "operators", "owners", "queue-objects", "sizes"),
    "status",
]
RULES = sorted([*PODS, *OBJECTS])
POLICIES = Path(sources.__file__).with_name("policies")
SOURCES = sorted(file.stem for file in POLICIES.glob("*.yaml") if file.stem != "shared")
MUTATION = "MutatingAdmissionPolicy"
POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"


def made(**sections: object) -> Program:
    budget = {"requests": {"cpu": 256, "memory": "2000Gi"}, "limits": {"cpu": 512}}
    teams = {"a": team(gpus={"h100": {"guaranteed": 8}}, compute=budget, containers={"max": {"gpu": 4}})}
    return tenancy(stack(**{"teams": teams, **sections}))


def names(program: Program, kind: str) -> list[str]:
    return sorted(resource.name.removeprefix("gpu-tenancy-") for resource in program.every(kind))


def spec(program: Program, kind: str, name: str) -> Any:
    return program.spec(kind, f"gpu-tenancy-{name}")


def expressions(program: Program, name: str) -> dict[str, str]:
    return {each["name"]: each["expression"] for each in spec(program, POLICY, name)["variables"]}


def test_each_rule_is_a_policy_with_a_binding() -> None:
    program = made()
    assert names(program, POLICY) == names(program, BINDING) == sorted([*RULES, "gpu-requests"])


@pytest.mark.parametrize(
    ("action", "in_the_apis_words"), {"deny": ["Deny"], "warn": ["Warn", "Audit"], "audit": ["Audit"]}.items()
)
def test_bindings_have_the_action_but_of_wrong_counts(action: str, in_the_apis_words: list[str]) -> None:
    program = made(guards=action)
    for name in RULES:
        assert spec(program, BINDING, name)["validationActions"] == in_the_apis_words
    assert spec(program, BINDING, "gpu-requests")["validationActions"] == ["Deny"]


def test_without_guards_only_wrong_counts_are_refused() -> None:
    program = made(guards="off")
    assert names(program, POLICY) == names(program, BINDING) == ["gpu-requests"]


@pytest.mark.parametrize("action", ["deny", "warn", "off"])
def test_device_claims_are_refused_where_kueue_admits_them(action: str) -> None:
    """There, no channel allows to tolerate a taint."""
    pools = {"cpu": pool("m7i.8xlarge", 2, labels={"node-type": "cpu"}), "gb200": pool("p6e-gb200.36xlarge", 2)}
    program = made(pools=pools, teams={"a": team(gpus={"gb200": {"guaranteed": 8}})}, guards=action)
    assert spec(program, BINDING, "device-claims")["validationActions"] == ["Deny"]
    if action != "off":
        reads = [expressions(each, "toleration")["claimsAreGpus"] for each in (program, made())]
        assert reads == ["false", "true"]


def test_grace_periods_are_those_of_the_stack() -> None:
    read = [expressions(program, "grace")["maximum"] for program in (made(), made(guards={"grace": {"jobs": "15m"}}))]
    assert [text.rpartition(" ? ")[2] for text in read] == ["3600 : 600", "3600 : 900"]
    for kind in (
        "apps/Deployment",
        "apps/StatefulSet",
        "leaderworkerset.x-k8s.io/LeaderWorkerSet",
        "ray.io/RayService",
    ):
        assert literal(kind) in read[0]
    assert literal("batch/Job") not in read[0]


def test_a_rule_that_has_nothing_to_judge_is_not_there() -> None:
    without = made(
        pools={"cpu": {"machine": "m7i.8xlarge", "nodes": 1}}, teams={"a": team(quota={"cpu": {"cpu": {"limit": 1}}})}
    )
    assert names(without, POLICY) == sorted({*RULES} - {"toleration"})
    assert names(made(teams={}), POLICY) == []


def test_policies_are_bound_to_the_namespaces_of_teams() -> None:
    program = made()
    labels: Any = program.only("Namespace").manifest["metadata"]
    for name in sorted({*RULES} - {"namespace"}):
        selector = spec(program, BINDING, name)["matchResources"]["namespaceSelector"]
        assert selector["matchLabels"].items() <= labels["labels"].items()
        (spared,) = selector["matchExpressions"]
        assert spared["operator"] == "NotIn"
        assert {"kube-system", "kueue-system"} <= set(spared["values"])
    assert "matchResources" not in spec(program, BINDING, "namespace")
    (of_team,) = (
        condition["expression"]
        for condition in spec(program, POLICY, "namespace")["matchConditions"]
        if condition["name"] == "of-a-team"
    )
    assert all(literal(text) in of_team for text in ("app.kubernetes.io/managed-by", "gpu-tenancy", "kube-system"))


def test_errors_of_policies_refuse() -> None:
    program = made()
    for name in RULES:
        assert spec(program, POLICY, name)["failurePolicy"] == "Fail"


def test_policies_spare_status_binding_and_most_deletions() -> None:
    for name in PODS:
        rules = spec(made(), POLICY, name)["matchConstraints"]["resourceRules"]
        parts = {item for rule in rules for item in rule["resources"] if "/" in item or "*" in item}
        judged = {"devices": "pods/ephemeralcontainers", "ratio": "pods/resize"}
        assert parts == {*([judged[name]] if name in judged else [])}
        operations = {operation for rule in rules for operation in rule["operations"]}
        more = {"grace": {"CREATE", "DELETE"}, "release": {"CREATE", "DELETE"}}
        assert operations == {"UPDATE"} | more.get(name, {"CREATE"})


def test_every_refusal_speaks_of_its_own_fault() -> None:
    for name in RULES:
        policy = spec(made(), POLICY, name)
        known = {variable["name"] for variable in policy["variables"]}
        for validation in policy["validations"]:
            fault = validation["messageExpression"].removeprefix("string(variables.").removesuffix("[0])")
            assert fault in known
            assert validation["expression"].endswith(f"size(variables.{fault}) == 0")


def test_teams_come_after_the_guards() -> None:
    program = made()
    bindings = program.every(BINDING)
    assert {resource.urn for resource in bindings} <= set(program.component("Team").dependencies)
    bound = {urn for resource in bindings for urn in resource.depends_on}
    assert {resource.urn for resource in program.every(POLICY)} == bound


def test_plain_values_become_cel() -> None:
    assert literal({"a's": ["x\\y", 1, 1.5, True]}) == r"{'a\'s': ['x\\y', 1, 1.5, true]}"
    assert literal([]) == "[]"


def test_the_policies_are_the_same_for_one_team_and_for_many() -> None:
    budget = {"requests": {"cpu": 256, "memory": "2000Gi"}, "limits": {"cpu": 512}}
    one = team(gpus={"h100": {"guaranteed": 1}}, compute=budget, containers={"max": {"gpu": 4}})
    few, many = (made(teams={f"team-{n}": one for n in range(count)}) for count in (1, 16))
    assert [spec(few, POLICY, name) for name in RULES] == [spec(many, POLICY, name) for name in RULES]
    assert [spec(few, BINDING, name) for name in RULES] == [spec(many, BINDING, name) for name in RULES]


def test_objects_counted_by_template_must_keep_their_pods() -> None:
    rules: Any = spec(made(), POLICY, "release")["matchConstraints"]["resourceRules"]
    deleted = {group for rule in rules if "DELETE" in rule["operations"] for group in rule["apiGroups"]}
    kueue = {"", "apps", "batch", "jobset.x-k8s.io", "keda.sh", "trainer.kubeflow.org"}
    assert deleted == {*kueue, "batch.volcano.sh", "scheduling.volcano.sh"}
    plan = planned(stack())
    integrated = replace(plan.guards, frameworks=(*plan.guards.frameworks, "ray.io/raycluster"))
    counted, *_ = filled("release", integrated)["match_constraints"]["resource_rules"]
    assert "ray.io" in counted["api_groups"]


def test_kueue_counts_integrated_kinds_by_template() -> None:
    by_pods = {kind.kind for kind in KINDS if kind.integration and not kind.counts_template}
    assert by_pods == {"Pod", "Deployment"}
    frameworks = tuple(kind.integration for kind in KINDS)
    everything = replace(planned(stack()).guards, frameworks=frameworks)
    for name, left in {"gpu-requests": {"pods", "deployments"}, "release": {"deployments"}}.items():
        rules: Any = filled(name, everything)["match_constraints"]["resource_rules"]
        of = {resource for rule in rules for resource in rule["resources"]}
        assert {kind.plural for kind in KINDS if kind.integration} - of == left
    _, scaled, _ = filled("sizes", everything)["match_constraints"]["resource_rules"]
    assert "statefulsets/scale" in scaled["resources"]
    assert "leaderworkersets/scale" not in scaled["resources"], "each of its groups is counted when it is there"


def test_each_size_of_an_integrated_kind_is_compared() -> None:
    gated = {"Pod", "Deployment", "StatefulSet", "LeaderWorkerSet"}
    assert {kind.kind for kind in KINDS if kind.integration and not kind.suspend} == gated
    compared = sizes(KINDS)
    for kind in (kind for kind in KINDS if kind.suspend):
        assert f"'{'.'.join(step.field for step in kind.suspend)}'" in compared
        fields = [f"?{field.replace('.', '.?')}" for pods in kind.pods for field in (*pods.count, *pods.sizes)]
        assert fields, f"{kind.kind}: its size has no field"
        assert [field for field in fields if field not in compared] == []


def test_elastic_jobs_are_refused_unless_the_stack_allows_them() -> None:
    allowed = {
        elastic: expressions(made(guards={"action": "deny", "elasticJobs": elastic}), "kueue-metadata")["elastic"]
        for elastic in (False, True)
    }
    assert {elastic: text.partition(" ?")[0] for elastic, text in allowed.items()} == {False: "false", True: "true"}


def test_integrated_kinds_have_their_queue_on_the_object() -> None:
    by_name = {kind.kind: kind for kind in KINDS}
    ray, sets = by_name["RayCluster"], by_name["LeaderWorkerSet"]
    assert (queue_place(ray, ()), queue_place(sets, ())) == ("templates", "never")
    frameworks = ("ray.io/raycluster", "leaderworkerset.x-k8s.io/leaderworkerset")
    assert (queue_place(ray, frameworks), queue_place(sets, frameworks)) == ("object", "object")


def test_variables_of_policies_are_read_once_defined() -> None:
    plan = planned(stack(images={"allowed": ["registry.example.com"]})).guards
    wrong: list[str] = []
    for name in SOURCES:
        policy = filled(name, plan)
        variables = [each["name"] for each in policy["variables"]]
        text = json.dumps([policy["variables"], policy["validations"]])
        wrong += [f"{name}: {variable} twice" for variable in variables if variables.count(variable) > 1]
        wrong += [f"{name}: {variable} is not read" for variable in variables if f"variables.{variable}" not in text]
        wrong += [
            f"{name}: {variable} reads {read} before it is there"
            for index, each in enumerate(policy["variables"])
            for variable in [each["name"]]
            for read in re.findall(r"variables\.(\w+)", each["expression"])
            if read not in variables[:index]
        ]
    assert wrong == []


def test_own_variables_of_a_policy_do_not_hide_shared_ones() -> None:
    shared = {*read_table(POLICIES / "shared.yaml")["variables"]}
    hidden = {
        name: sorted(shared & {*source.get("variables", {}), *source["violations"]})
        for name in SOURCES
        for source in [read_table(POLICIES / f"{name}.yaml")]
    }
    assert {name: names for name, names in hidden.items() if names} == {}


def test_policies_read_only_fields_that_updates_compare() -> None:
    judging = {name: read_table(POLICIES / f"{name}.yaml") for name in SOURCES}
    texts = {
        name: json.dumps([source.get("variables", {}), source["violations"]])
        for name, source in judging.items()
        if re.search("changesWork|podsChanged", source.get("onlyIf", ""))
    }
    assert len(texts) > 7
    reads = {name: {*re.findall(r"(?<!\w)object\.\??(\w+)", text)} - {"kind"} for name, text in texts.items()}
    # In comparisons of both versions.
    others = {"kueue-metadata": {"metadata"}}
    assert {name: fields for name, fields in reads.items() if fields} == others


ON_136 = {"cloud": "existing", "version": "1.36"}


def test_defaults_exist_from_kubernetes_136_on() -> None:
    for action in ("deny", "off"):
        program = made(cluster=ON_136, guards=action)
        assert names(program, MUTATION) == [f"default-{name}" for name in sorted(DEFAULTS)]
        assert names(program, f"{MUTATION}Binding") == names(program, MUTATION)
    for cluster in ({"cloud": "existing"}, {"cloud": "existing", "version": "1.35"}):
        assert names(made(cluster=cluster), MUTATION) == []
    assert names(made(cluster=ON_136, teams={}), MUTATION) == []
    without_gpus = tenancy(stack(**{**CPUS, "cluster": {**CPUS["cluster"], "version": "1.36"}}))
    assert names(without_gpus, MUTATION) == [f"default-{name}" for name in sorted(DEFAULTS)]


def test_defaults_complete_guards_and_never_refuse() -> None:
    program = made(cluster=ON_136)
    (guarded,) = {json.dumps(spec(program, BINDING, "queue")["matchResources"])}
    for name in DEFAULTS:
        policy = spec(program, MUTATION, f"default-{name}")
        assert policy["failurePolicy"] == "Ignore"
        assert json.dumps(spec(program, f"{MUTATION}Binding", f"default-{name}")["matchResources"]) == guarded
        conditions = {condition["name"] for condition in policy["matchConditions"]}
        # Pods of all owners are pulled.
        assert {"not-exempt", *(["not-of-an-operator"] if name != "pull-secrets" else [])} <= conditions


def test_teams_come_after_the_defaults() -> None:
    program = made(cluster=ON_136)
    bindings = {resource.urn for resource in program.every(f"{MUTATION}Binding")}
    assert bindings <= set(program.component("Team").dependencies)


def test_expressions_of_defaults_read_only_what_is_there() -> None:
    plan = planned(stack(cluster=ON_136)).guards
    wrong: list[str] = []
    for name in DEFAULTS:
        policy = mutation(name, plan)
        variables = policy.get("variables", [])
        known = [each["name"] for each in variables]
        text = json.dumps([variables, policy["mutations"]])
        wrong += [f"{name}: {one} is not read" for one in known if f"variables.{one}" not in text]
        wrong += [f"{name}: {one} is not there" for one in re.findall(r"variables\.(\w+)", text) if one not in known]
    assert wrong == []
