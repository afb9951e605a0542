"""Programs from official images: from a test registry on loopback."""

import gzip
import hashlib
import io
import json
import platform
import socket
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from embedded_builders import quiet
from loopback import serving_content

from gpu_tenancy.embedded.building import KUBERNETES, SOURCE
from gpu_tenancy.embedded.parts import PARTS
from gpu_tenancy.embedded.programs import Official, Program, UnavailableError, download, read_official

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(platform.system() != "Linux", reason="official programs are for Linux"),
]

RUNS = b"#!/bin/sh\necho v1\n"
OTHERS = {"amd64": "arm64", "arm64": "amd64"}
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@dataclass
class Registry:
    """The content of a registry, by its digests, and its requests."""

    content: dict[str, bytes] = field(default_factory=dict[str, bytes])
    asked: list[str] = field(default_factory=list[str])
    address: str = ""

    def put(self, content: bytes) -> str:
        """Stores content; returns its digest."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        self.content[digest] = content
        return digest

    def image(self, *layers: Mapping[str, bytes], machine: str = MACHINE) -> str:
        """An image whose layers have these files, for one machine; returns the digest of its index."""
        blobs = [packed(files) for files in layers]
        described = [{"digest": self.put(blob), "size": len(blob)} for blob in blobs]
        manifest = self.put(json.dumps({"layers": described}).encode())
        other = {"digest": self.put(b"{}"), "platform": {"os": "linux", "architecture": OTHERS[machine]}}
        mine = {"digest": manifest, "platform": {"os": "linux", "architecture": machine}}
        return self.put(json.dumps({"manifests": [other, mine]}).encode())

    def official(self, **digests: str) -> Official:
        """A table of programs in it, each at `bin/NAME`."""
        programs = {
            name: Program(image=f"some/{name}", version="v1", digest=digest, file=f"bin/{name}", source="")
            for name, digest in digests.items()
        }
        return Official(registry=self.address, programs=programs)


def packed(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(content.getvalue(), mtime=0)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.delenv("GPU_TENANCY_REGISTRY", raising=False)
    found = Registry()

    def content(path: str) -> bytes | None:
        found.asked.append(path)
        return found.content.get(path.rpartition("/")[2])

    with serving_content(content) as found.address:
        yield found


def test_downloads_one_file_of_each_image_once(registry: Registry, tmp_path: Path) -> None:
    official = registry.official(
        etcd=registry.image({"etc/passwd": b""}, {"./bin/etcd": RUNS, "bin/etcdctl": RUNS}, {"bin/upper": RUNS}),
        kwok=registry.image({"bin/kwok": RUNS}),
    )
    folder = download(official, tmp_path, quiet)
    assert {file.name: (file.read_bytes(), file.stat().st_mode & 0o777) for file in folder.iterdir()} == {
        "etcd": (RUNS, 0o755),
        "kwok": (RUNS, 0o755),
    }
    asked = len(registry.asked)
    assert download(official, tmp_path, quiet) == folder
    assert len(registry.asked) == asked


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"bin/other": RUNS}, "some/etcd:v1 has no file bin/etcd"),
        ({"bin/etcd": b"not a program"}, "etcd does not run on this machine"),
        ({"bin/etcd": b"#!/bin/sh\necho too new >&2\nexit 3\n"}, "etcd --version failed with exit code 3: too new"),
        (b'{"manifests": []}', f"some/etcd:v1 has no image for linux/{MACHINE}"),
        (b"<html>", "http://127.0.0.1:"),
    ],
    ids=["no program", "no executable", "a program that fails", "other machines alone", "no image"],
)
def test_refuses_an_image(registry: Registry, tmp_path: Path, image: Mapping[str, bytes] | bytes, message: str) -> None:
    digest = registry.put(image) if isinstance(image, bytes) else registry.image(image)
    with pytest.raises(UnavailableError, match=message):
        download(registry.official(etcd=digest), tmp_path, quiet)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_keeps_complete_downloads_after_a_failure(registry: Registry, tmp_path: Path) -> None:
    second = registry.image({"bin/kwok": RUNS})
    official = registry.official(etcd=registry.image({"bin/etcd": RUNS}), kwok=second)
    layer = next(digest for digest, content in registry.content.items() if content == packed({"bin/kwok": RUNS}))
    content = registry.content.pop(layer)
    with pytest.raises(UnavailableError, match=f"/v2/some/kwok/blobs/{layer}: HTTP 404"):
        download(official, tmp_path, quiet)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["etcd"]
    registry.content[layer] = content
    registry.asked.clear()
    assert (download(official, tmp_path, quiet) / "kwok").is_file()
    assert not [path for path in registry.asked if "etcd" in path]


@pytest.mark.parametrize("what", ["index", "manifest", "layer"])
def test_content_with_another_digest_is_not_used(registry: Registry, tmp_path: Path, what: str) -> None:
    """Index, manifest and layer in turn replace the pinned one."""
    other = registry.image({"bin/etcd": b"#!/bin/sh\necho another\n"})
    digest = registry.image({"bin/etcd": RUNS})
    layer = packed({"bin/etcd": RUNS})
    described = f'"size": {len(layer)}}}]'.encode()
    found = {
        "index": [digest],
        "manifest": [name for name, content in registry.content.items() if content.endswith(described + b"}")],
        "layer": [name for name, content in registry.content.items() if content == layer],
    }
    (replaced,) = found[what]
    registry.content[replaced] = registry.content[other] + b" "
    with pytest.raises(UnavailableError, match=f"digest mismatch: expected {replaced}, got sha256:"):
        download(registry.official(etcd=digest), tmp_path, quiet)
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_an_unreachable_registry_is_a_reason_to_build(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        registry = Registry(address=f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(UnavailableError, match=f"{registry.address}: .*refused"):
            download(registry.official(etcd=f"sha256:{'0' * 64}"), tmp_path, quiet)


def test_a_mirror_can_be_named_and_the_download_switched_off(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    official = registry.official(etcd=registry.image({"bin/etcd": RUNS}))
    elsewhere = official.model_copy(update={"registry": "https://registry.example.com"})
    monkeypatch.setenv("GPU_TENANCY_REGISTRY", registry.address)
    assert (download(elsewhere, tmp_path, quiet) / "etcd").is_file()
    monkeypatch.setenv("GPU_TENANCY_REGISTRY", "off")
    with pytest.raises(UnavailableError, match="GPU_TENANCY_REGISTRY=off"):
        download(official, tmp_path / "other", quiet)
    monkeypatch.setenv("GPU_TENANCY_REGISTRY", "http://mirror.example.com")
    with pytest.raises(UnavailableError, match="is not an https URL"):
        download(official, tmp_path / "other", quiet)


def test_table_has_each_part_in_the_built_version() -> None:
    official = read_official()
    assert set(official.programs) == set(PARTS)
    modules = (SOURCE / "go.mod").read_text(encoding="utf-8")
    for name, program in official.programs.items():
        assert program.file.endswith(f"/{name}")
        if name.startswith("kube-"):
            assert program.version == KUBERNETES
    assert f"sigs.k8s.io/kwok {official.programs['kwok'].version}\n" in modules
    assert f"go.etcd.io/etcd/server/v3 v{official.programs['etcd'].version.partition('-')[0]}\n" in modules
