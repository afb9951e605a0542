"""Changes of each resource between two renderings, and the inputs that replace cloud resources."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from builders import Data, job, server
from cli_builders import Project, small
from originals import original

from gpu_tenancy.engine.project import Preview, preview
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.catalogue.updates import CloudType, cloud_types, differences, replacing
from gpu_tenancy.review.changes import Change, FieldChange, changes


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.at(tmp_path / "project")


def rendered(project: Project, sections: Data) -> Preview:
    project.write("s", sections)
    return preview("s", project.folder)


def between(project: Project, before: Data, after: Data) -> tuple[Change, ...]:
    old, new = rendered(project, before), rendered(project, after)
    return changes(old.rendered, new.rendered, [*old.stack.pools, *new.stack.pools])


def with_team(name: str, **sections: object) -> Data:
    found = small()
    return {**found, "teams": {**found["teams"], name: {**found["teams"].get(name, {}), **sections}}}


def test_a_stack_has_no_changes_against_itself(project: Project) -> None:
    assert between(project, small(), small()) == ()


def test_raised_limit_changes_only_that_teams_objects(project: Project) -> None:
    found = between(project, small(), with_team("speech", gpus={"l4": {"guaranteed": 2, "limit": 4}}))
    assert {change.group for change in found} == {"team speech"}
    assert {change.action for change in found} == {"update"}
    quota = next(change for change in found if change.kind == "ResourceQuota")
    assert quota.place == "ResourceQuota speech/budget"
    assert FieldChange("spec.hard.requests.nvidia.com/gpu", "2", "4") in quota.fields


def test_deletions_come_first_by_name(project: Project) -> None:
    without = small()
    del without["teams"]["speech"]
    found = between(project, small(), {**without, "priorities": {"high": 1000, "low": 10, "new": 5}})
    assert [change.action for change in found] == sorted(
        (change.action for change in found), key=["delete", "replace", "create", "update"].index
    )
    gone = [change.place for change in found if change.action == "delete"]
    assert {"Namespace speech", "ResourceQuota speech/budget", "ClusterQueue speech"} <= set(gone)
    assert [change.place for change in found if change.action == "create"] == [
        "PriorityClass new",
        "WorkloadPriorityClass new",
    ]


def test_a_jobs_new_image_replaces_it_and_a_servers_does_not(project: Project) -> None:
    image = "registry.example.com/new:2.0"
    changed = with_team("vision", training={"nightly": job(gpus=2, image=image)}, serving={"api": server(image=image)})
    found = {change.kind: change for change in between(project, small(), changed)}
    assert found["Job"].action == "replace"
    assert [field.replaces for field in found["Job"].fields] == [True]
    assert found["Deployment"].action == "update"
    assert found["Deployment"].fields == (
        FieldChange("spec.template.spec.containers.0.image", "registry.example.com/serve:1.0", image),
    )


def config_map(**inputs: object) -> Rendered:
    registration = Registration("urn:1", "kubernetes:core/v1:ConfigMap", "it", custom=True, inputs=inputs)  # pyright: ignore[reportArgumentType] - JSON
    return Rendered("p", "s", (registration,), {})


def test_changed_secrets_are_never_shown() -> None:
    def secret(value: str) -> Rendered:
        found = config_map(data={"key": value, "other": "a"})
        return replace(found, registrations=(replace(found.registrations[0], secret_paths=(("data", "key"),)),))

    assert changes(secret("hunter1"), secret("hunter2")) == ()
    (change,) = changes(secret("hunter1"), config_map(data={"key": "open", "other": "b"}))
    assert "hunter1" not in str(change)
    assert FieldChange("data.key", "[secret]", "open", replaces=True) in change.fields


def test_a_text_that_is_a_map_is_compared_key_by_key() -> None:
    (change,) = changes(
        config_map(data={"c.yaml": "a: 1\nb: {c: 2}\n"}), config_map(data={"c.yaml": "a: 1\nb: {c: 3}\n"})
    )
    assert change.fields == (FieldChange("data.c.yaml.b.c", "2", "3", replaces=True),)


def test_ignored_inputs_are_not_changes() -> None:
    before, after = config_map(data={"a": "1"}), config_map(data={"a": "2"})
    ignoring = replace(after, registrations=(replace(after.registrations[0], ignore_changes=("data",)),))
    assert changes(before, ignoring) == ()
    assert len(changes(before, after)) == 1


def test_long_values_are_shortened_and_missing_ones_are_empty() -> None:
    (change,) = changes(config_map(data={}), config_map(data={"a": "x" * 500}))
    (field,) = change.fields
    assert (field.before, len(field.after), field.after[-1]) == ("", 120, "…")


@pytest.mark.parametrize(
    ("key", "before", "after", "shown"),
    [
        ("maxRun", "45s", "1209600s", ("45s", "1209600s (14d)")),
        ("activeDeadlineSeconds", 30, 14400, ("30", "14400 (4h)")),
        ("replicas", 30, 14400, ("30", "14400")),
    ],
)
def test_seconds_are_also_shown_in_a_larger_unit(key: str, before: object, after: object, shown: object) -> None:
    (change,) = changes(config_map(data={key: before}), config_map(data={key: after}))
    assert [(field.before, field.after) for field in change.fields] == [shown]


def test_config_maps_are_changed_in_place(project: Project) -> None:
    found = rendered(project, small())
    provider = next(
        resource for resource in found.rendered.registrations if resource.type == "pulumi:providers:kubernetes"
    )
    assert provider.inputs["enableConfigMapMutable"] in {True, "true"}

    def with_map(value: str) -> Rendered:
        (declared,) = config_map(data={"a": value}).registrations
        return Rendered("p", "s", (provider, replace(declared, provider=f"{provider.urn}::some-id")), {})

    (change,) = changes(with_map("1"), with_map("2"))
    assert (change.action, [field.replaces for field in change.fields]) == ("update", [False])


# The table of inputs that replace cloud resources, compared with the schema of a provider.


POOL: Final = "gcp:container/nodePool:NodePool"
CONFIG: Final = "gcp:container/NodePoolNodeConfig:NodePoolNodeConfig"
PACKAGE: Final[dict[str, Any]] = {
    "name": "gcp",
    "resources": {POOL: {"inputProperties": {"name": {"type": "string", "willReplaceOnChanges": True},
        "nodeCount": {"type": "integer"}, "nodeConfig": {"$ref": f"#/types/{CONFIG}"}, "disks": {"type": "array",
        "items": {"$ref": f"#/types/{CONFIG}"}}}}},
    "types": {CONFIG: {"properties": {"spot": {"type": "boolean", "willReplaceOnChanges": True},
        "labels": {"type": "object"}, "again": {"$ref": f"#/types/{CONFIG}"}}}},
}  # fmt: skip


def test_inputs_that_replace_are_read_at_every_depth() -> None:
    assert replacing(PACKAGE, POOL) == {"name", "nodeConfig.spot", "disks.spot"}


def test_what_is_missing_and_what_is_too_much_is_named() -> None:
    exact = CloudType(replaces=("name", "nodeConfig.spot", "disks.*"))
    assert list(differences(PACKAGE, {POOL: exact, "aws:eks/cluster:Cluster": CloudType()})) == []
    off = CloudType(replaces=("name", "nodeConfig.spot", "nodeCount"))
    assert list(differences(PACKAGE, {POOL: off})) == [
        f"{POOL}: disks.spot replaces it; add it",
        f"{POOL}: nodeCount is not marked in the schema; remove it, or say why it is there",
    ]
    assert list(differences(PACKAGE, {"gcp:kms/keyRing:KeyRing": exact})) == [
        "gcp:kms/keyRing:KeyRing: not in the schema"
    ]


def test_the_table_has_what_the_schema_of_google_marks() -> None:
    package = json.loads(original("schemas/gcp.json").read_text(encoding="utf-8"))
    assert [line for line in differences(package, cloud_types()) if line.endswith("add it")] == []
