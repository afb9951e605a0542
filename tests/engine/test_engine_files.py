"""Files and trees of objects."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from offline_builders import NAMESPACE, QUEUE, QUOTA, Rendering, an_object, component, manifest, stack_of
from rendered_stacks import stack_of_repository
from rich.console import Console

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine import files
from gpu_tenancy.engine.details import details, tree
from gpu_tenancy.engine.files import as_yaml, by_pyyaml, write
from gpu_tenancy.engine.objects import kubernetes_objects
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.model.project import stack_names

OBJECTS = [an_object(registration.inputs) for registration in (NAMESPACE, QUOTA, QUEUE)]


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_each_object_has_a_file_in_the_folder_of_its_namespace(tmp_path: Path) -> None:
    written = write(OBJECTS, tmp_path)
    assert below(tmp_path) == [
        "_cluster/clusterqueue-ml-research.yaml",
        "_cluster/namespace-ml-research.yaml",
        "ml-research/resourcequota-gpus.yaml",
    ]
    assert [path.relative_to(tmp_path).as_posix() for path in written] == below(tmp_path)


def test_a_file_reads_as_its_object(tmp_path: Path) -> None:
    write(OBJECTS, tmp_path)
    assert (tmp_path / "ml-research/resourcequota-gpus.yaml").read_text() == (
        "# Written by the offline preview; the next one overwrites it.\n"
        "apiVersion: v1\n"
        "kind: ResourceQuota\n"
        "metadata:\n"
        "  name: gpus\n"
        "  namespace: ml-research\n"
        "spec:\n"
        "  hard:\n"
        "    requests.nvidia.com/gpu: '36'\n"
    )


def test_writing_again_changes_no_file(tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in write(OBJECTS, tmp_path)}
    assert {path: path.stat().st_mtime_ns for path in write(OBJECTS, tmp_path)} == before


def test_files_and_folders_of_objects_that_left_are_removed(tmp_path: Path) -> None:
    write(OBJECTS, tmp_path)
    write(OBJECTS[:1], tmp_path)
    assert below(tmp_path) == ["_cluster/namespace-ml-research.yaml"]
    assert not (tmp_path / "ml-research").exists()


def test_files_of_others_stay(tmp_path: Path) -> None:
    write(OBJECTS, tmp_path)
    (tmp_path / "ml-research" / "notes.yaml").write_text("mine: true\n")
    write([], tmp_path)
    assert below(tmp_path) == ["ml-research/notes.yaml"]


def test_refuses_to_overwrite_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "_cluster").mkdir()
    mine = tmp_path / "_cluster" / "namespace-ml-research.yaml"
    mine.write_text("mine: true\n")
    with pytest.raises(FileExistsError, match="was not written by tenancy"):
        write(OBJECTS, tmp_path)
    assert below(tmp_path) == ["_cluster/namespace-ml-research.yaml"]
    assert mine.read_text() == "mine: true\n"


@pytest.mark.parametrize("left", ["", "# Written by the off"])
def test_a_file_that_a_full_disk_cut_off_is_written_again(tmp_path: Path, left: str) -> None:
    (mine, *_) = write(OBJECTS, tmp_path)
    whole = mine.read_text()
    mine.write_text(left)
    write(OBJECTS, tmp_path)
    assert mine.read_text() == whole


def test_built_in_kind_keeps_the_plain_file_name(tmp_path: Path) -> None:
    volcano = an_object(manifest("Job", "train", "ml", api="batch.volcano.sh/v1alpha1"))
    write([volcano, an_object(manifest("Job", "train", "ml", api="batch/v1"))], tmp_path)
    assert below(tmp_path) == ["ml/job-train.yaml", "ml/job.batch.volcano.sh-train.yaml"]
    assert "apiVersion: batch/v1" in (tmp_path / "ml/job-train.yaml").read_text()


def test_one_object_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="have this file name; rename one of them"):
        write([OBJECTS[0], OBJECTS[0]], tmp_path)


def test_a_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    write([an_object(manifest("ClusterRole", "../system:node", api="rbac.authorization.k8s.io/v1"))], tmp_path)
    assert below(tmp_path) == ["_cluster/clusterrole-.._system_node.yaml"]


def test_secrets_are_not_written(rendering: Rendering, tmp_path: Path) -> None:
    rendered = rendering("""
    k8s.core.v1.Secret("s", metadata={"name": "s", "namespace": "ml"}, string_data={"password": "hunter2"})
    k8s.core.v1.ConfigMap(
        "c", metadata={"name": "c", "namespace": "ml"},
        data={"url": pulumi.Output.concat("https://me:", pulumi.Output.secret("hunter2"))},
    )
    """)
    folder = tmp_path / "objects"
    texts = [path.read_text() for path in write(kubernetes_objects(rendered), folder)]
    assert len(texts) == 2
    assert all("[secret]" in text for text in texts)
    assert not any("hunter2" in text for text in texts)


def test_text_of_several_lines_is_a_block() -> None:
    script = "#!/bin/sh\nset -eu\nexec train --gpus 8\n"
    text = as_yaml(an_object(manifest("ConfigMap", "c", "ml", data={"run.sh": script})).shown)
    assert "  run.sh: |\n    #!/bin/sh\n    set -eu\n    exec train --gpus 8\n" in text


QUOTED = ("1e3", "0o17", "1_000", "12", "on", "no", "null", "~", "2026-01-01", "1.5")


@pytest.mark.parametrize("text", [*QUOTED, "8Gi", "500m", "10.0.0.0/8", "nvidia.com/gpu", "v1"])
def test_only_ambiguous_text_is_quoted(text: str) -> None:
    shown = f"'{text}'" if text in QUOTED else text
    assert f"key: {shown}\n" in as_yaml(an_object(manifest("ConfigMap", "c", "ml", data={"key": text})).shown)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@example({"\x85": "\r\n"})
def test_written_yaml_reads_back_the_same(value: Json) -> None:
    body = manifest("ConfigMap", "c", "ml", data=value)
    assert yaml.safe_load(as_yaml(an_object(body).shown)) == body


KUEUE = "kueue.x-k8s.io/v1beta2"


def shown(rendered: Rendered) -> str:
    text = io.StringIO()
    Console(width=100, file=text).print(tree(rendered))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def test_each_resource_is_under_its_parent_with_a_count() -> None:
    team = component("ml-research")
    rendered = stack_of(team, component("alpha"), *(replace(one, parent=team.urn) for one in (NAMESPACE, QUOTA, QUEUE)))
    assert shown(rendered) == (
        "gpu-tenancy/dev  3 resources\n"
        "├── Team alpha  0 resources\n"
        "└── Team ml-research  3 resources\n"
        "    ├── ClusterQueue ml-research\n"
        "    ├── Namespace ml-research\n"
        "    └── ResourceQuota gpus  requests.nvidia.com/gpu 36\n"
    )


def test_providers_and_what_is_only_read_are_left_out(rendering: Rendering) -> None:
    rendered = rendering("""
    provider = k8s.Provider("cluster", kubeconfig="{}")
    k8s.core.v1.Namespace.get("read", "kube-system")
    k8s.core.v1.Namespace("a", metadata={"name": "child"}, opts=pulumi.ResourceOptions(parent=provider))
    """)
    assert len(rendered.registrations) == 3
    assert shown(rendered) == "gpu-tenancy/dev  1 resource\n└── Namespace child\n"


def test_secrets_are_not_shown(rendering: Rendering) -> None:
    rendered = rendering("""
    hidden = pulumi.Output.secret("hunter2")
    k8s.core.v1.ResourceQuota("q", metadata={"name": "q", "namespace": hidden}, spec={"hard": {"pods": hidden}})
    k8s.core.v1.Namespace("a", metadata={"name": hidden})
    """)
    text = shown(rendered)
    assert "ResourceQuota q  pods [secret]" in text
    assert "Namespace (a: no name)" in text
    assert "hunter2" not in text


def test_a_line_never_passes_the_width_of_the_terminal() -> None:
    hard: dict[str, Json] = {f"requests.example.com/resource-{number}": "1" for number in range(20)}
    long = replace(QUOTA, inputs=manifest("ResourceQuota", "q" * 60, "ml", spec={"hard": hard}))
    lines = shown(stack_of(long)).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= 100
    assert lines[1].endswith("…")


def quota(flavor: str, resource: str, nominal: Json, borrowing: Json = None) -> dict[str, Json]:
    amounts: dict[str, Json] = {"name": resource, "nominalQuota": nominal}
    if borrowing is not None:
        amounts["borrowingLimit"] = borrowing
    return {"flavors": [{"name": flavor, "resources": [amounts]}]}


POD: dict[str, Json] = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": 2}}}]}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (manifest("ClusterQueue", "q", api=KUEUE, spec={"resourceGroups": [quota("a100", "nvidia.com/gpu", 8, 24),
         quota("cpu", "cpu", 4)]}), "a100 8 → 32"),
        (manifest("ClusterQueue", "q", api=KUEUE, spec={"resourceGroups": [quota("cpu", "memory", "1Gi", "2Gi")]}),
         "cpu memory 1Gi → 3Gi"),
        (manifest("Cohort", "c", api=KUEUE, spec={"parentName": "org", "resourceGroups": [quota("h100",
         "nvidia.com/gpu", 8)]}), "parent org; h100 8"),
        (manifest("LocalQueue", "q", "ml", api=KUEUE, spec={"clusterQueue": "ml"}), "cluster queue ml"),
        (manifest("ResourceFlavor", "f", api=KUEUE, spec={"nodeLabels": {"gpu": "a100"}}), "gpu=a100"),
        (manifest("WorkloadPriorityClass", "p", api=KUEUE, value=1000), "1000"),
        (manifest("PriorityClass", "p", api="scheduling.k8s.io/v1", value=0), "0"),
        (manifest("ResourceQuota", "q", "ml", spec={"hard": {"pods": "5", "requests.nvidia.com/gpu": "36"}}),
         "requests.nvidia.com/gpu 36, pods 5"),
        (manifest("LimitRange", "l", "ml", spec={"limits": [{"max": {"cpu": 4}}]}), "max cpu 4"),
        (manifest("Namespace", "ml") | {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}},
         "pod security baseline"),
        (manifest("Deployment", "d", "ml", api="apps/v1", spec={"template": POD}), "nvidia.com/gpu 8"),
        (manifest("Job", "j", "ml", api="batch/v1", spec={"parallelism": 4, "template": POD}), "4 x nvidia.com/gpu 8"),
        (manifest("Job", "j", "ml", api="batch.volcano.sh/v1alpha1", spec={"tasks": [{"name": "master", "replicas": 1,
         "template": POD}]}), "master 1 x nvidia.com/gpu 8"),
        (manifest("HorizontalPodAutoscaler", "h", "ml", api="autoscaling/v2",
         spec={"scaleTargetRef": {"name": "server"}, "minReplicas": 3, "maxReplicas": 50}), "server 3 → 50"),
        (manifest("PodDisruptionBudget", "p", "ml", api="policy/v1", spec={"maxUnavailable": "10%"}),
         "max unavailable 10%"),
        (manifest("Queue", "q", api="scheduling.volcano.sh/v1beta1", spec={"capability": {"cpu": "4"}}), "cpu 4"),
        (manifest("ConfigMap", "c", "ml", data={"a": "b"}), ""),
    ],
)  # fmt: skip
def test_the_most_telling_fields_of_a_kind_are_shown(body: dict[str, Json], words: str) -> None:
    assert details(body) == words


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        (KUEUE, "ClusterQueue"),
        (KUEUE, "Cohort"),
        ("v1", "ResourceQuota"),
        ("v1", "LimitRange"),
        ("apps/v1", "Deployment"),
        ("batch.volcano.sh/v1alpha1", "Job"),
    ],
)
def test_leaves_out_malformed_fields(api: str, kind: str) -> None:
    assert details(manifest(kind, "x", api=api, spec="[unknown]")) == ""


# Texts that are written without PyYAML have PyYAML's bytes.


NEAR_SIMPLE = st.text(st.sampled_from("aAzZ09_./-+=,():#'\" \n\t|>?%@`&*!~<[]{}\\\x85é"), max_size=12)
TEXTS = (
    NEAR_SIMPLE
    | st.text(max_size=20)
    | st.sampled_from(
        ["yes", "Off", "null", "1e3", "0x1f", "1:30", "2026-01-01", "---", "=", "<<", ".5", "-1", "+.inf"]
    )
    | st.integers(90, 140).map(lambda length: "a" * length)
)
BLOCK_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=16,
)


@settings(deadline=None)  # no timing decides a test
@given(st.dictionaries(TEXTS, BLOCK_JSON, max_size=5))
@example({})
@example({"a": [[], {}, [[1], {"b": "c\n\n d\n"}], "e: f", "- g"], "h": " i\n  j\n\n", "k": "l\n"})
@example({"a" * 127: 1, "b" * 128: 2, "c" * 129: 3})
def test_any_data_has_the_bytes_of_pyyaml(content: dict[str, Json]) -> None:
    assert as_yaml(content) == by_pyyaml(content)


def test_texts_that_pyyaml_breaks_into_lines_have_its_bytes() -> None:
    content: dict[str, Json] = {"a": {"b": "c " * 40_000}}
    assert (as_yaml(content) == by_pyyaml(content)) is True  # without pytest's comparison of long texts


@pytest.mark.parametrize("stack", stack_names())
def test_every_object_has_the_bytes_of_pyyaml(stack: str) -> None:
    for item in kubernetes_objects(stack_of_repository(stack).rendered):
        assert as_yaml(item.shown) == by_pyyaml(item.shown)


def test_the_usual_object_is_written_without_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object, **__: object) -> str:
        raise AssertionError

    monkeypatch.setattr(yaml, "dump", no)
    files.__dict__["_text"].cache_clear()
    text = as_yaml({"metadata": {"name": "a", "labels": {"x.io/y": "8"}}, "items": [{"b": 1}, ["c", True, None]]})
    assert text == (
        "metadata:\n  name: a\n  labels:\n    x.io/y: '8'\nitems:\n  - b: 1\n  - - c\n    - true\n    - null\n"
    )
