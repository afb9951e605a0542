from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from offline_builders import NAMESPACE, QUEUE, QUOTA, Rendering, an_object, manifest

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.files import to_yaml, write
from gpu_tenancy.engine.objects import kubernetes_objects

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


def test_an_existing_file_of_others_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
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


def test_of_two_kinds_with_one_name_kubernetes_own_keeps_the_plain_file(tmp_path: Path) -> None:
    volcano = an_object(manifest("Job", "train", "ml", api="batch.volcano.sh/v1alpha1"))
    batch = an_object(manifest("Job", "train", "ml", api="batch/v1"))
    write([volcano, batch], tmp_path)
    assert below(tmp_path) == ["ml/job-train.yaml", "ml/job.batch.volcano.sh-train.yaml"]
    assert "apiVersion: batch/v1" in (tmp_path / "ml/job-train.yaml").read_text()


def test_one_object_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="have this file name; rename one of them"):
        write([OBJECTS[0], OBJECTS[0]], tmp_path)


def test_a_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    odd = an_object(manifest("ClusterRole", "../system:node", api="rbac.authorization.k8s.io/v1"))
    write([odd], tmp_path)
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
    text = to_yaml(an_object(manifest("ConfigMap", "c", "ml", data={"run.sh": script})))
    assert "  run.sh: |\n    #!/bin/sh\n    set -eu\n    exec train --gpus 8\n" in text


@pytest.mark.parametrize("text", ["1e3", "0o17", "1_000", "12", "on", "no", "null", "~", "2026-01-01", "1.5"])
def test_ambiguous_text_is_quoted(text: str) -> None:
    assert f"key: '{text}'" in to_yaml(an_object(manifest("ConfigMap", "c", "ml", data={"key": text})))


@pytest.mark.parametrize("text", ["8Gi", "500m", "10.0.0.0/8", "nvidia.com/gpu", "v1"])
def test_usual_text_stays_bare(text: str) -> None:
    assert f"key: {text}\n" in to_yaml(an_object(manifest("ConfigMap", "c", "ml", data={"key": text})))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@example({"\x85": "\r\n"})
def test_written_yaml_reads_back_the_same(value: Json) -> None:
    body = manifest("ConfigMap", "c", "ml", data=value)
    assert yaml.safe_load(to_yaml(an_object(body))) == body
