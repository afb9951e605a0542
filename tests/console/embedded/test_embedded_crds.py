import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from embedded_builders import quiet

from console.cluster.client import Cluster
from console.cluster.references import Reference
from console.embedded import crds
from console.embedded.crds import Pinned, find, install, read_lock, write_lock
from console.errors import ConsoleError

CONTENT = b"kind: CustomResourceDefinition\n"
SUM = hashlib.sha256(CONTENT).hexdigest()
PINNED = Pinned("crds/one.yaml", "project", "v1", "https://example.com/one.yaml", SUM)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class gives the name
        """Says nothing."""


@pytest.fixture
def downloads(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address at which its files are."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/one.yaml"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_copy_beside_the_repository_is_taken_before_anything_is_downloaded(tmp_path: Path) -> None:
    (tmp_path / "copy" / "crds").mkdir(parents=True)
    (tmp_path / "copy" / "crds" / "one.yaml").write_bytes(CONTENT)
    assert find(PINNED, tmp_path / "cache", tmp_path / "copy") == CONTENT
    assert not (tmp_path / "cache").exists()


def test_what_no_copy_has_is_downloaded_once(tmp_path: Path, downloads: tuple[Path, str]) -> None:
    folder, address = downloads
    (folder / "one.yaml").write_bytes(CONTENT)
    pinned, nowhere, cache = replace(PINNED, url=address), tmp_path / "nowhere", tmp_path / "cache"
    assert find(pinned, cache, nowhere) == CONTENT
    (folder / "one.yaml").unlink()
    assert find(pinned, cache, nowhere) == CONTENT


def test_a_copy_that_is_not_what_was_pinned_is_passed_over(tmp_path: Path, downloads: tuple[Path, str]) -> None:
    folder, address = downloads
    (folder / "one.yaml").write_bytes(CONTENT)
    (tmp_path / "copy" / "crds").mkdir(parents=True)
    (tmp_path / "copy" / "crds" / "one.yaml").write_bytes(b"an older one")
    assert find(replace(PINNED, url=address), tmp_path / "cache", tmp_path / "copy") == CONTENT


def test_a_download_that_is_not_what_was_pinned_is_refused_and_not_kept(
    tmp_path: Path, downloads: tuple[Path, str]
) -> None:
    folder, address = downloads
    (folder / "one.yaml").write_bytes(b"something else")
    cache = tmp_path / "cache"
    with pytest.raises(ConsoleError, match=f"but {SUM} was pinned; do not use it") as refused:
        find(replace(PINNED, url=address), cache, tmp_path / "nowhere")
    assert hashlib.sha256(b"something else").hexdigest() in str(refused.value)
    assert not list(cache.rglob("*"))


@pytest.mark.usefixtures("downloads")
def test_a_download_that_fails_is_tried_again_and_then_told_with_what_helps(
    tmp_path: Path, downloads: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crds, "_PAUSES", (0.0, 0.0))
    with pytest.raises(ConsoleError, match="cannot be downloaded: HTTP Error 404") as refused:
        find(replace(PINNED, url=downloads[1]), tmp_path / "cache", tmp_path / "nowhere")
    assert "GPU_TENANCY_UPSTREAM" in str(refused.value)


def test_an_address_that_is_not_encrypted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="no https address"):
        find(replace(PINNED, url="http://example.com/one.yaml"), tmp_path, tmp_path / "nowhere")


def test_each_pinned_definition_has_an_encrypted_address_and_a_checksum() -> None:
    assert len(read_lock()) > 30
    assert len({pinned.path for pinned in read_lock()}) == len(read_lock())
    for pinned in read_lock():
        assert pinned.url.startswith("https://")
        assert len(pinned.sha256) == 64


def test_a_new_lock_holds_the_definitions_of_an_index_but_kwoks(tmp_path: Path) -> None:
    row = {"path": "crds/b/x.yaml", "project": "b", "version": "v1", "url": "https://example.com/x", "sha256": SUM}
    others = [
        {**row, "path": "crds/a/x.yaml", "project": "a"},
        {**row, "project": "kwok"},
        {**row, "path": "charts/x.tgz"},
    ]
    (tmp_path / "index.json").write_text(json.dumps([row, *others]))
    write_lock(tmp_path / "index.json", tmp_path / "lock.json")
    assert [(pin.project, pin.path) for pin in read_lock(tmp_path / "lock.json")] == [
        ("a", "crds/a/x.yaml"),
        ("b", "crds/b/x.yaml"),
    ]


def test_a_definition_is_served_after_its_install_and_a_second_install_sends_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    definition: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pins.embedded.example.com"},
        "spec": {
            "group": "embedded.example.com",
            "scope": "Cluster",
            "names": {"kind": "Pin", "plural": "pins", "singular": "pin"},
            "conversion": {"strategy": "Webhook"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    content = yaml.safe_dump(definition).encode()
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "one.yaml").write_bytes(content)
    monkeypatch.setenv("GPU_TENANCY_UPSTREAM", str(tmp_path))
    pins = [replace(PINNED, sha256=hashlib.sha256(content).hexdigest())]
    told: list[str] = []
    try:
        install(cluster, tmp_path / "cache", told.append, pins)
        assert told == ["installing 1 custom resource definitions"]
        assert cluster.list("embedded.example.com/v1", "Pin") == ()
        monkeypatch.delattr(Cluster, "apply")
        install(cluster, tmp_path / "cache", told.append, pins)
        assert len(told) == 1
    finally:
        cluster.delete(Reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", "pins.embedded.example.com"))
        cluster.forget_kinds()


def test_every_pinned_definition_is_on_the_platform(cluster: Cluster, tmp_path: Path) -> None:
    install(cluster, tmp_path, quiet)
    assert not list(tmp_path.iterdir())
