"""Clients of the server of `tenancy ui`, and its answers."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from starts import GUARD
from ui_served import Served, events, research, serving

pytestmark = pytest.mark.process


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(research("late"), tmp_path) as found:
        yield found


def ask(served: Served, path: str, host: str = "", method: str = "GET") -> tuple[int, dict[str, str], str]:
    server = served.server
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=GUARD)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{server.server_port}"})
    answer = connection.getresponse()
    found = answer.status, dict(answer.headers.items()), answer.read().decode()
    connection.close()
    return found


def test_page_requires_the_token_and_the_loopback(served: Served) -> None:
    token, port = served.server.token, served.server.server_port
    assert served.server.server_address[0] == "127.0.0.1"
    assert ask(served, f"/{token}/")[0] == 200
    assert ask(served, f"/{token}/", f"localhost:{port}")[0] == 200
    for path in ("/", "/events", f"/{token}", f"/{token[:-1]}/", f"/x{token}/", "/%C3%A9/", f"/{token}/other", "//"):
        assert ask(served, path)[0] == 404, path
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", f"[::1]:{port}"):
        assert ask(served, f"/{token}/", host)[0] == 421, host


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_nothing_is_answered_but_reading(served: Served, method: str) -> None:
    assert ask(served, f"/{served.server.token}/", method=method)[0] == 501


def test_answers_have_no_credentials_and_safe_headers(served: Served) -> None:
    token = served.server.token
    for path in ("", "why?namespace=research&kind=Job&name=late"):
        _, headers, text = ask(served, f"/{token}/{path}")
        assert "secret-token" not in text
        assert token not in text
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        expected = {
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
        }
        assert expected.items() <= headers.items()
        assert not [name for name in headers if name.startswith("Access-Control")]


def test_events_have_the_page_first_and_then_what_changed(served: Served) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.server.server_port, timeout=GUARD)
    connection.request("GET", f"/{served.server.token}/events")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"] == "text/event-stream"
    found = events(iter(answer.readline, b""))
    assert {"pending", "tree", "nodes"} <= json.loads(next(found))["sections"].keys()
    served.change(research("late", "later"))
    changed = next(data for data in map(json.loads, found) if "pending" in data["sections"])
    assert "later" in changed["sections"]["pending"]
    assert "nodes" not in changed["sections"]
    served.change("the API server is not reachable")
    stale = next(data for data in map(json.loads, found) if data["problem"])
    assert stale["problem"].startswith("Not refreshed since ")
    assert stale["problem"].endswith("the API server is not reachable; wait")
    assert stale["sections"] == {}
    served.change(research())
    assert "later" not in next(data for data in map(json.loads, found) if not data["problem"])["sections"]["pending"]
    connection.close()
