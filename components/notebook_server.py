"""What runs in the container of a notebook: JupyterLab, and the probe by which its pod says that it is idle.

The ConfigMap of the team has this file, beside `notebooks.json`. It needs Python 3.8 and nothing else, because the
image is the team's. JupyterLab listens on the loopback of the pod only: whoever may forward a port of the pod reaches
it, and no other pod does. Only a notebook with a host listens on all addresses, for the Gateway that ends TLS for it.
Its token is made here and stays in the container: neither the manifest of the pod nor its log has it.
"""

import calendar
import http.client
import json
import os
import secrets
import sys
import time
from pathlib import Path
from typing import Any


def start() -> None:
    """Starts JupyterLab in place of this program."""
    os.umask(0o077)
    Path(os.environ["JUPYTER_TOKEN_FILE"]).write_text(secrets.token_urlsafe(32), encoding="ascii")
    # `*` is all addresses of IPv4 and IPv6. Cookies are for TLS only if the Gateway says that it has TLS.
    where = ["--ip=*", "--ServerApp.trust_xheaders=True"] if os.environ.get("NOTEBOOK_HOST") else ["--ip=127.0.0.1"]
    address = [*where, "--port=" + os.environ["NOTEBOOK_PORT"], "--ServerApp.port_retries=0"]
    home = "--ServerApp.root_dir=" + os.environ["HOME"]
    os.execvp("jupyter", ["jupyter", "lab", "--no-browser", *address, home])  # noqa: S606 - there is no shell


def idle() -> str:
    """How long there was no activity, if that is too long; empty otherwise.

    A server that does not answer, or not yet, is not idle.
    """
    settings = json.loads(Path(__file__).with_name("notebooks.json").read_text(encoding="utf-8"))
    try:
        seconds = time.time() - _last_activity()
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        sys.stderr.write(f"no answer of Jupyter: {error}\n")
        return ""
    if seconds < settings["idle"]:
        return ""
    return f"idle for {seconds / 60:.0f} min, of at most {settings['idle'] / 60:.0f} min"


def _last_activity() -> float:
    """When a cell or a terminal was last active, else when the server started; in seconds since 1970.

    Requests of an open browser are no activity:
    https://jupyter-server.readthedocs.io/en/latest/developers/rest-api.html.
    """
    last = _seconds(_ask("/api/status")["started"])
    for kernel in _ask("/api/kernels"):
        last = max(last, time.time() if kernel["execution_state"] == "busy" else _seconds(kernel["last_activity"]))
    for terminal in _ask("/api/terminals") or ():
        last = max(last, _seconds(terminal["last_activity"]))
    return last


def _ask(path: str) -> Any:
    """What Jupyter answers; None for what it does not have, such as terminals."""
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["NOTEBOOK_PORT"]), timeout=10)
    token = Path(os.environ["JUPYTER_TOKEN_FILE"]).read_text(encoding="ascii")
    connection.request("GET", path, headers={"Authorization": f"token {token}"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status == http.HTTPStatus.NOT_FOUND:
        return None
    if answer.status != http.HTTPStatus.OK:
        msg = f"{path}: status {answer.status}"
        raise ValueError(msg)
    return json.loads(content)


def _seconds(text: str) -> float:
    """A time of Jupyter, in UTC, such as `2026-11-26T08:00:00.123456Z`."""
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


if __name__ == "__main__":
    if sys.argv[1:] == ["idle"]:
        sys.exit(idle() or None)
    start()
