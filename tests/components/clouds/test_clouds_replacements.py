"""Changes that replace or delete cloud resources, and stacks that are created again."""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module
from inspect import signature
from itertools import chain
from pathlib import Path
from pkgutil import walk_packages
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import eks_shapes
import pulumi
import pytest
import yaml
from builders import Data, team
from cli_builders import Project, git, tenancy
from cloud_descriptions import KEYS, LOG_GROUP, Clouds, TakenError, rows
from cloud_stacks import (
    A100,
    REGION,
    RESERVATION,
    RESERVED,
    SUBNETS,
    aks_creation,
    aks_partitions,
    aks_pool,
    aks_stack,
    eks_creation,
    eks_pool,
    eks_section,
    eks_stack,
    gke_creation,
    gke_stack,
)
from components_builders import Graph, cluster
from eks_shapes import CALLS
from rendered_stacks import stack_of_repository
from repository import ROOT
from test_clouds_networks import aks as network_aks
from test_clouds_networks import gke as network_gke

import components.clouds
from gpu_tenancy.base.json import Json, at, map_at
from gpu_tenancy.engine.project import Preview, preview
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue.preflight import preflight
from gpu_tenancy.model.catalogue.updates import CloudType, cloud_types, without_indexes
from gpu_tenancy.model.outlook import StackOutlook, outlook
from gpu_tenancy.model.project import read_stack
from gpu_tenancy.review.build import read_real
from gpu_tenancy.review.changes import Change, changes
from gpu_tenancy.review.review import Comparison, Verdict
from gpu_tenancy.review.verdict import verdict

STACKS = ("dev-aws", "prod-aws", "prod-azure", "prod-gcp")


def declared() -> Iterator[tuple[str, type[pulumi.CustomResource]]]:
    """Classes of cloud resources that the components construct, by type token."""
    for file in sorted((ROOT / "components" / "clouds").glob("*/*.py")):
        module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                continue
            made = _resolved(ast.unparse(node.func), vars(module))
            if isinstance(made, type) and issubclass(made, pulumi.CustomResource):
                token = str(getattr(made, "pulumi_type", ""))
                if token.startswith(("aws:", "azure-native:", "gcp:")):
                    yield token, made


def _resolved(dotted: str, names: dict[str, Any]) -> object:
    first, *rest = dotted.split(".")
    found: object = names.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return found


def test_each_cloud_type_has_a_row_with_inputs_of_its_sdk() -> None:
    classes = dict(declared())
    assert classes.keys() == {token for token in cloud_types() if not token.startswith("kubernetes:")}
    for token, made in classes.items():
        row, known = cloud_types()[token], set(signature(vars(made)["_internal_init"]).parameters)
        nodes = [field for paths in (row.restarts, row.removes, row.updates) for field in chain(*paths.values())]
        for field in (*row.replaces, *row.fixed, *row.creation, *nodes):
            assert _snake(field.partition(".")[0]) in {*known, *(f"{name.rstrip('_')}" for name in known)}, token


def rights() -> Mapping[str, tuple[str, ...]]:
    """What resources need, by type, of all clouds."""
    facts = preflight()
    return {**facts.aws.types, **facts.azure.types, **facts.gcp.types}


def test_each_cloud_type_has_a_row_of_rights() -> None:
    components = {token for token in rights() if token.startswith("gpu-tenancy:")}
    assert {token for token in rights() if not token.endswith(".get")} - components == declared_again()
    read = {one.type for name in STACKS for one in stack_of_repository(name).rendered.registrations if one.external_id}
    assert {f"{token}.get" for token in read} <= rights().keys()
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "components" / "clouds").glob("*/*.py"))
    places = {*preflight().azure.features, *preflight().azure.places, *preflight().gcp.places}
    own = (components | places) - rights().keys()
    assert all(f'"{token}"' in source for token in components | own)


# Actions whose names are not those of the operations of AWS's APIs:
# https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html.
ACTIONS: Final = {
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
    "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
}
OF_S3: Final = {
    "GetAccelerateConfiguration",
    "GetBucketCORS",
    "GetBucketObjectLockConfiguration",
    "GetBucketPublicAccessBlock",
    "GetEncryptionConfiguration",
    "GetLifecycleConfiguration",
    "GetReplicationConfiguration",
    "ListBucket",
    "PutBucketPublicAccessBlock",
    "PutEncryptionConfiguration",
}
SERVICES: Final = {"elasticfilesystem": "efs"}  # AWS's models by the services of actions


@pytest.mark.slow  # botocore reads the models of services
def test_rights_of_aws_are_those_of_its_operations() -> None:
    """Every call of the creation is allowed, tags are, and no action is misspelt."""
    back = {model: name for name, model in SERVICES.items()}
    for token, calls in CALLS.items():
        made = [call for call in calls if call.operation not in {"ModifyLaunchTemplate", "ScheduleKeyDeletion"}]
        names = [f"{back.get(call.service, call.service)}:{call.operation}" for call in made]
        assert {ACTIONS.get(name, name) for name in names} <= {*rights()[token]}, token
    for one in (one for name in ("dev-aws", "prod-aws") for one in stack_of_repository(name).rendered.registrations):
        if one.inputs.get("tags"):
            assert any("Tag" in right for right in rights()[one.type]), one.type
    for service, name in {tuple(right.split(":", 1)) for row in preflight().aws.types.values() for right in row}:
        known = OF_S3 if service == "s3" else {"PassRole"}
        assert name in known or name in eks_shapes.service(SERVICES.get(service, service))["operations"], name


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def with_other(inputs: Any, path: list[str]) -> Any:
    """Inputs with another value at a path; missing parents are created."""
    if not path or path == ["*"]:
        return "another"
    if isinstance(inputs, list):
        items = cast("list[Any]", inputs)
        return [with_other(items[0], path), *items[1:]] if items else [with_other({}, path)]
    inside = cast("dict[str, Any]", inputs) if isinstance(inputs, dict) else {}
    return {**inside, path[0]: with_other(inside.get(path[0]), path[1:])}


@cache
def summary(stack: str) -> StackOutlook:
    return outlook(stack_of_repository(stack).stack)


def judged(found: tuple[Change, ...], stack: str) -> Verdict:
    return verdict(summary(stack), Comparison("main", "abc1234", summary(stack), ()), found, None)


@pytest.mark.parametrize("stack", STACKS)
def test_no_change_of_an_input_that_replaces_a_resource_is_ok(stack: str) -> None:
    rendered = stack_of_repository(stack).rendered
    one_each: dict[str, Registration] = {}
    for registration in rendered.registrations:
        if registration.type in cloud_types() and registration.will_exist:
            one_each.setdefault(registration.type, replace(registration, unknown_paths=()))
    assert one_each
    for token, registration in one_each.items():
        for field in (*cloud_types()[token].replaces, *cloud_types()[token].fixed):
            if any(f"{field}.".startswith(f"{ignored}.") for ignored in registration.ignore_changes):
                continue
            had = cloud_types()[token].fixed_if or field
            if token.startswith("kubernetes:") and at(registration.inputs, *had.split(".")) is None:
                continue  # `self == oldSelf` says nothing of a field that appears
            other = replace(registration, inputs=with_other(deepcopy(dict(registration.inputs)), field.split(".")))
            before, after = (Rendered("p", "s", (one,), {}) for one in (registration, other))
            found = changes(before, after, stack_of_repository(stack).stack.pools)
            result = judged(found, stack)
            assert result.title in {"Review needed", "Blocked"}, (token, field)
            assert result.title == "Blocked" or not registration.protect, (token, field)


@pytest.mark.parametrize("stack", STACKS)
def test_each_deletion_is_reviewed_and_a_protected_one_blocked(stack: str) -> None:
    rendered = stack_of_repository(stack).rendered
    for registration in rendered.registrations:
        if registration.type in cloud_types() and registration.will_exist:
            before, after = (Rendered("p", "s", left, {}) for left in ((registration,), ()))
            result = judged(changes(before, after), stack)
            assert result.title == ("Blocked" if registration.protect else "Review needed"), registration.urn


def set_at(sections: Data, path: str, value: object) -> Data:
    first, _, rest = path.partition(".")
    if value is None and not rest:
        return {key: one for key, one in sections.items() if key != first}
    return {**sections, first: set_at(sections.get(first, {}), rest, value) if rest else value}


@lru_cache(maxsize=2)
def previewed(content: str) -> Preview:
    with TemporaryDirectory() as folder:
        project = Project.at(Path(folder) / "project")
        project.write("s", json.loads(content))
        return preview("s", project.folder)


def reviewed(before: Data, after: Data) -> Verdict:
    now, was = previewed(json.dumps(after)), previewed(json.dumps(before))
    found = changes(was.rendered, now.rendered, [*was.stack.pools, *now.stack.pools])
    return verdict(outlook(now.stack), Comparison("main", "abc1234", outlook(was.stack), ()), found, None)


CHANGES: Final[Data] = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text(encoding="utf-8"))
_NODES: Final = ("Restarts ", "May restart ", "Replaces ", "Deletes ")


@pytest.mark.slow
@pytest.mark.parametrize(("stack", "path"), [(stack, path) for stack, rows in CHANGES.items() for path in rows])
def test_a_change_names_the_nodes_that_end(stack: str, path: str) -> None:
    row = CHANGES[stack][path]
    sections = dict(read_stack(stack).sections)
    result = reviewed(sections, set_at(sections, path, row.get("value")))
    assert result.title == row["verdict"], result.sentences
    ends = [sentence for sentence in result.sentences if sentence.startswith(row.get("says", _NODES))]
    assert bool(ends) == ("says" in row), result.sentences


def test_thirty_changes_of_production_are_in_the_table() -> None:
    assert all(len(CHANGES[stack]) >= 8 for stack in ("prod-aws", "prod-gcp", "prod-azure"))
    assert sum(len(CHANGES[stack]) for stack in ("prod-aws", "prod-gcp", "prod-azure")) >= 30


# What a change does to nodes is known for each input that the program sets


def _variants() -> Iterator[Data]:
    """Pools of each cloud that together have all inputs which the program can set."""
    yield from STACKS_AGAIN.values()
    block, reservation = ({"kind": kind, "reservation": RESERVATION} for kind in ("capacity-block", "reserved"))
    eks_pools = {
        "gpu": eks_pool(compact=True, fabric=True, zones=[f"{REGION}a"], numa="restricted"),
        "spot": eks_pool("g6.12xlarge", capacity="spot"),
        "reserved": eks_pool("p4d.24xlarge", capacity=reservation, zones=[f"{REGION}a"]),
        "block": eks_pool("p5en.48xlarge", {"min": 0, "max": 2}, capacity=block, zones=[f"{REGION}a"]),
    }
    for name in ("cluster-autoscaler", "karpenter"):
        yield {**eks(autoscaler=name), "pools": {**eks(autoscaler=name)["pools"], **eks_pools}}
    yield aks_stack(
        aks_creation(),
        fixed=aks_partitions(A100, "1g.10gb"),
        spot=aks_pool(capacity="spot", labels={"example.com/spot": "yes"}),
        near=aks_pool(compact=True, zones=["1"], numa="restricted", labels={"example.com/near": "yes"}),
        t4=aks_pool("Standard_NC64as_T4_v3", capacity={"kind": "reserved", "reservation": RESERVED}),
    )
    streamed = gke_stack(create=gke_creation(), imageStreaming=True)
    spot = {"machine": "a2-ultragpu-8g", "nodes": 1, "capacity": "spot", "numa": "restricted"}
    yield {**streamed, "pools": {**streamed["pools"], "spot": spot}}


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        items: Any = (
            cast("Any", value).items() if isinstance(value, dict) else [("", one) for one in cast("Any", value)]
        )
        for key, inner in items:
            yield from _leaves(inner, ".".join(filter(None, (path, key))))
    else:
        yield path


def _of_nodes(row: CloudType) -> bool:
    return bool(row.restarts or row.updates)


@pytest.mark.slow
def test_the_table_has_each_input_of_nodes() -> None:
    rendered = [one for stack in STACKS for one in stack_of_repository(stack).rendered.registrations]
    rendered += [
        one for sections in _variants() for one in cluster(sections, Clouds().answers()).rendered.registrations
    ]
    seen: dict[str, set[str]] = {}
    for one in rendered:
        if one.will_exist and _of_nodes(cloud_types().get(one.type, CloudType())):
            ignored = {f"{field}." for field in one.ignore_changes}
            paths = {path for path in _leaves(dict(one.inputs)) if not f"{path}.".startswith(tuple(ignored))}
            seen.setdefault(one.type, set()).update(paths)
    assert {token for token, row in cloud_types().items() if _of_nodes(row)} == seen.keys()
    assert {token for token, row in cloud_types().items() if row.what in {"pool", "cluster"}} <= seen.keys()
    known = {token: row.nodes for token, row in cloud_types().items()}
    unknown = [(token, path) for token in seen for path in seen[token] if known[token](path) == "may restart"]
    assert unknown == []


def test_an_input_has_one_effect() -> None:
    for token, row in cloud_types().items():
        each = [field for part in (row.restarts, row.removes, row.updates) for field in chain(*part.values())]
        each += [*row.creation, *row.fixed, *(field.removesuffix(".*") for field in row.replaces)]
        replacing = {name for one in row.replaces for name in (one, one.removesuffix(".*"))}
        assert [field for field in each if row.forces([field])] == [one for one in each if one in replacing], token
        assert len(set(each)) == len(each), token


@pytest.mark.parametrize("stack", STACKS)
def test_an_input_that_the_table_lacks_may_restart(stack: str) -> None:
    rendered = stack_of_repository(stack)
    for registration in rendered.rendered.registrations:
        if registration.will_exist and _of_nodes(cloud_types().get(registration.type, CloudType())):
            other = replace(registration, inputs={**registration.inputs, "newOption": True})
            before, after = (Rendered("p", "s", (one,), {}) for one in (registration, other))
            result = judged(changes(before, after, rendered.stack.pools), stack)
            assert result.title == "Review needed", registration.name
            assert result.sentences[0].startswith("May restart the "), result.sentences


@pytest.mark.parametrize("drift", [None, {"days": ["saturday"], "start": "02:00", "hours": 6}])
def test_karpenter_restarts_nodes_only_where_drift_is_set(drift: Data | None) -> None:
    before = eks_stack(eks_section(autoscaler="karpenter", **({"drift": drift} if drift else {})))
    result = reviewed(before, set_at(before, "pools.gpu.disk", {"size": "600Gi"}))
    restarts = any(one.startswith("Restarts the nodes of pool gpu (2 nod") for one in result.sentences)
    assert restarts == bool(drift)


def test_a_version_of_aks_restarts_pools_and_system_nodes() -> None:
    before = aks_stack(aks_creation())
    result = reviewed(before, set_at(before, "cluster.create.version", "1.36"))
    assert result.title == "Review needed"
    said = "\n".join(result.sentences)
    assert "Restarts the nodes of pools cpu, gpu (up to 7 nodes, up to 32 GPUs, used by a): orchestratorVersion" in said
    assert "Restarts the system nodes: agentPoolProfiles.orchestratorVersion changes" in said


def test_a_reviewer_unlocks_the_restart_of_protected_nodes(tmp_path: Path) -> None:
    """As the deletion of a protected resource: `pulumi state unprotect`, which `pulumi preview` shows."""
    current = stack_of_repository("prod-aws")
    group = next(one for one in current.rendered.registrations if one.name == "cluster-pool-h100-group")
    for protect, title in ((True, "Blocked"), (False, "Review needed")):
        step = {
            "op": "update",
            "urn": group.urn,
            "oldState": {"custom": True, "protect": protect, "inputs": {"version": "1.35"}},
            "newState": {"custom": True, "protect": True, "inputs": {"version": "1.36"}},
            "detailedDiff": {"version": {"kind": "update"}},
        }
        file = tmp_path / "preview.json"
        file.write_text(json.dumps({"steps": [step]}), encoding="utf-8")
        real = read_real(file, current.rendered, None, tuple(current.stack.pools))
        summary = outlook(current.stack)
        result = verdict(summary, Comparison("main", "abc1234", summary, ()), (), None, real=real)
        assert result.title == title, result.sentences


OPEN: Final[dict[str, Any]] = {"allowFrom": ["203.0.113.0/24"]}


@pytest.mark.parametrize(
    ("before", "after", "blocked"),
    [
        (eks_stack(eks_creation(**OPEN)), eks_stack(eks_creation()), False),
        (gke_stack(create=gke_creation(**OPEN)), gke_stack(create=gke_creation()), False),
        (aks_stack(aks_creation(**OPEN)), aks_stack(aks_creation()), True),
    ],
    ids=["EKS", "GKE", "AKS"],
)
def test_api_servers_become_private_later_except_of_aks(before: Data, after: Data, *, blocked: bool) -> None:
    result = reviewed(before, after)
    assert (result.title == "Blocked") == blocked, result.line
    assert ("AKS cannot change a cluster to private" in result.line) == blocked


@pytest.mark.process  # git
def test_the_page_creates_a_private_aks_cluster(tmp_path: Path) -> None:
    """The steps of docs/clouds.md: what must exist is listed once, and the API server is private from the first."""
    page = (ROOT / "docs" / "clouds.md").read_text(encoding="utf-8").partition("### A private AKS cluster")[2]
    config = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    sections: Data = {key.removeprefix("gpu-tenancy:"): section for key, section in config.items()}
    project = Project.at(tmp_path / "project")
    project.write("s", {**sections, "teams": {"a": team(gpus={"a100": {"guaranteed": 0}})}})
    shown = preview("s", project.folder)
    (made,) = [one for one in shown.rendered.registrations if one.type.endswith(":ManagedCluster")]
    entrance = map_at(made.inputs, "apiServerAccessProfile")
    assert (entrance["enablePrivateCluster"], entrance["privateDNSZone"]) == (True, "system")
    assert "authorizedIPRanges" not in entrance
    assert not [one for one in shown.rendered.registrations if one.type.endswith(":VirtualNetwork")]
    lines = tenancy("preview", "s", project=project.folder).output.splitlines()
    first = lines.index("Before the deployment, these must exist:") + 1
    kinds = [line.split()[1] for line in lines[first:] if ": az " in line]
    assert kinds == ["resource", "vault", "key", "workspace:", "tenant", "group"]
    group = "- resource group ml-prod: az group create --subscription 5a1d2c3b-0e4f-4a6b-9c8d-7e6f5a4b3c2d"
    assert lines[first] == f"{group} --name ml-prod --location eastus"
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "--message", "first")):
        git(project.folder, *words)
    again = tenancy("preview", "s", "--base", "HEAD", project=project.folder).output
    assert "must exist" not in again


def test_the_machine_of_aks_system_nodes_cannot_be_changed() -> None:
    before = aks_stack(aks_creation())
    result = reviewed(before, set_at(before, "cluster.create.system.machine", "Standard_D32s_v5"))
    assert result.title == "Blocked"
    assert result.sentences[0] == (
        "cluster ml cannot be changed: agentPoolProfiles.0.vmSize: AKS cannot change the machine of a node pool;"
        " restore the value"
    )


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "value", "code"),
    [("cluster.create.system.machine", "Standard_D32s_v5", 3), ("pools.cpu.machine", "Standard_D64s_v5", 0)],
)
def test_a_preview_fails_for_a_change_that_is_blocked(tmp_path: Path, path: str, value: str, code: int) -> None:
    project, before = Project.at(tmp_path / "project"), aks_stack(aks_creation())
    project.write("s", before)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(project.folder, *words)
    project.write("s", set_at(before, path, value))
    seen = tenancy("preview", "s", "--base", "HEAD", "--out", str(tmp_path / "out"), project=project.folder)
    assert (seen.exit_code, (tmp_path / "out/exit-code").read_text()) == (code, f"{code}\n")
    assert ("Blocked" if code else "Review needed") in seen.output


def test_the_deletion_of_a_key_says_what_it_encrypts() -> None:
    rendered = stack_of_repository("dev-aws").rendered
    key = next(one for one in rendered.registrations if one.type == "aws:kms/key:Key")
    gone = Rendered("p", "s", (replace(key, retain_on_delete=False),), {})
    said = judged(changes(gone, Rendered("p", "s", (), {})), "dev-aws").sentences[0]
    assert said.startswith("Deletes the key cluster-control-plane-key: what it encrypts cannot be read any more")


def test_users_of_a_replaced_output_are_replaced_with_it() -> None:
    rendered = stack_of_repository("dev-aws").rendered
    role = next(one for one in rendered.registrations if one.inputs.get("name") == "ml-dev-system")
    renamed = replace(role, inputs={**role.inputs, "path": "/others/"})
    after = replace(rendered, registrations=tuple(renamed if one is role else one for one in rendered.registrations))
    found = {change.name: change for change in changes(rendered, after)}
    nodes = found["cluster-system-group"]
    assert (nodes.action, nodes.effect.label, nodes.effect.deleted_first) == ("replace", "system nodes", True)
    assert [without_indexes(field.path.split(".")) for field in nodes.fields] == ["nodeRoleArn"]


# A stack can be destroyed and created again under the same names, and keys that encrypt something stay


OWN_KEY: Final = {
    "aws": "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-4e5f-6a7b-8c9d-0e1f2a3b4c5d",
    "gcp": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
}
SHARED: Final = {
    "efs": {"size": "2Ti", "mode": "shared"},
    "fast": {"size": "4800Gi", "mode": "shared", "class": "fsx-lustre"},
}


def eks(zones: Sequence[str] = (), **cluster: Any) -> Data:
    create = {"zones": zones} if zones else {}
    sections = eks_stack(eks_creation(eks_section(**cluster), **create))
    sections["teams"]["a"] |= {"storage": SHARED, "secrets": {"wandb": {"from": "aws://eu-central-1/a/wandb"}}}
    return with_bucket(sections, "s3://ml-out")


def with_bucket(sections: Data, bucket: str) -> Data:
    return {**sections, "datasets": {"out": {"bucket": bucket, "create": True}}}


STACKS_AGAIN: Final[Mapping[str, Data]] = {
    "node groups": eks(autoscaler="cluster-autoscaler"),
    "created network": eks(subnets={}, zones=list(SUBNETS)),
    "karpenter": eks(autoscaler="karpenter"),
    "gke": with_bucket(gke_stack(create=gke_creation()), "gs://ml-out/v1"),
    "gke network": with_bucket(network_gke(), "gs://ml-out/v1"),
    "aks": with_bucket(aks_stack(aks_creation()), "az://mlout/out"),
    "aks network": with_bucket(network_aks(), "az://mlout/out"),
}


def sent(sections: Data, clouds: Clouds) -> list[Registration]:
    """Cloud registrations of a stack, in an order of their creation."""
    graph = Graph(cluster(sections, clouds.answers()).rendered)
    ordered = [graph.known[urn] for urn in graph.order()]
    return [one for one in ordered if one.type.startswith(("aws:", "gcp:", "azure-native:")) and not one.external_id]


def declared_again() -> set[str]:
    """Types of all cloud resources in modules of components/clouds."""
    found: set[str] = set()
    for module in walk_packages(components.clouds.__path__, "components.clouds."):
        names = vars(import_module(module.name))
        source = Path(names["__file__"]).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            found |= _types(names, node)
    return found


def _types(names: Mapping[str, Any], node: ast.AST) -> set[str]:
    """The resource type of an expression such as `aws.iam.Role`."""
    value: Any = None
    match node:
        case ast.Name(id=name):
            value = names.get(name)
        case ast.Attribute():
            steps = ast.unparse(node).split(".")
            value = names.get(steps[0]) if all(step.isidentifier() for step in steps) else None
            for step in steps[1:]:
                value = getattr(value, step, None)
        case _:
            return set()
    token = _token(value) if isinstance(value, type) and issubclass(value, pulumi.CustomResource) else ""
    return {token} if token.startswith(("aws:", "gcp:", "azure-native:")) else set()


def _token(resource: type[pulumi.CustomResource]) -> str:
    return str(getattr(resource, "pulumi_type", ""))


@pytest.mark.slow
def test_each_cloud_type_says_whether_its_name_is_free_again() -> None:
    assert rows().keys() == declared_again()
    assert all(row.source for row in rows().values() if row.after != "free")
    played = {one.type for sections in STACKS_AGAIN.values() for one in sent(sections, Clouds())}
    assert {type_ for type_, row in rows().items() if row.after != "free"} <= played


@pytest.mark.parametrize("name", STACKS_AGAIN)
def test_a_destroyed_stack_can_be_created_again(name: str) -> None:
    sections, clouds = STACKS_AGAIN[name], Clouds()
    first = sent(sections, clouds)
    clouds.destroy(reversed(first), clouds.create(first))
    assert clouds.scheduled == []
    again = deepcopy(sections)
    with pytest.raises(TakenError, match=r"ml-?out"):  # a bucket with its data is not the stack's
        deepcopy(clouds).create(sent(again, clouds))
    del again["datasets"]["out"]["create"]
    clouds.create(sent(again, clouds))


@pytest.mark.parametrize(("name", "cloud"), [("node groups", "aws"), ("gke", "gcp")])
def test_a_key_in_use_is_never_scheduled_for_deletion(name: str, cloud: str) -> None:
    """With `secretsKey` set later, the program registers no key any more."""
    clouds, changed = Clouds(), deepcopy(STACKS_AGAIN[name])
    first = sent(STACKS_AGAIN[name], clouds)
    state = clouds.create(first)
    changed["cluster"]["create"]["secretsKey"] = OWN_KEY[cloud]
    left = {one.urn for one in sent(changed, clouds)}
    gone = [one for one in first if one.urn not in left]
    assert KEYS & {one.type for one in gone}
    clouds.destroy(reversed(gone), state)
    assert clouds.scheduled == []


def registration(type_: str, **inputs: Json) -> Registration:
    return Registration("urn", type_, "one", custom=True, inputs=inputs)


def test_the_model_refuses_what_clouds_refuse() -> None:
    """Formerly: a ring with a fixed name, a log group that is deleted, and a key that is deleted."""
    ring = registration("gcp:kms/keyRing:KeyRing", name="r", project="p", location="l")
    log = registration(LOG_GROUP, name="/aws/eks/ml/cluster", retentionInDays=365)
    key = registration("aws:kms/key:Key")
    for one in (ring, log):
        clouds = Clouds()
        clouds.destroy([one], clouds.create([one]))
        with pytest.raises(TakenError):
            clouds.create([one])
    clouds = Clouds()
    clouds.destroy([key], clouds.create([key]))
    assert clouds.scheduled == ["one"]
