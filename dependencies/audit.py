"""Asks advisory databases about each locked package, with pip-audit.

`python -m dependencies.audit`. pip-audit passes over packages that a database does not know, as one of an index that
has no advisories, and then says that nothing was found. So a database counts only if it answers for every package.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import uv

from dependencies.lock import ROOT

VULNERABLE, UNAUDITED = 1, 2
"""Exit codes."""
DATABASES: Final = ("osv", "pypi")
"""Services of pip-audit, in the order in which they are asked."""
_WITHIN: Final = 600
"""Seconds in which a database must answer; 140 packages take about ten."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a database has about the packages.

    Attributes:
        found: lines about vulnerable packages.
        failure: why it did not answer; empty if it did.
    """

    audited: int = 0
    skipped: int = 0
    found: tuple[str, ...] = ()
    failure: str = ""

    @property
    def complete(self) -> bool:
        """Whether each package was audited."""
        return not self.failure and not self.skipped


def requirements(file: Path) -> None:
    """Writes all packages of the lock, with hashes."""
    command = (uv.find_uv_bin(), "export", "--quiet", "--frozen", "--offline", "--no-header", "--no-annotate")
    everything = ("--all-extras", "--all-groups", "--no-emit-project", "--output-file", str(file))
    subprocess.run([*command, *everything], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def ask(database: str, packages: Path, *, osv: str = "") -> Answer:
    """Asks one database.

    Args:
        database: a service of pip-audit.
        packages: a file of requirements with hashes.
        osv: the URL of another server with the API of OSV; empty for OSV's own.
    """
    options = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")
    service = ("--vulnerability-service", database, *(["--osv-url", osv] if osv else []))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip_audit", "-r", str(packages), *options, *service],
            capture_output=True,
            text=True,
            check=False,
            timeout=_WITHIN,
        )
    except subprocess.TimeoutExpired:
        return Answer(failure=f"no answer within {_WITHIN} s")
    try:
        return read(json.loads(done.stdout)["dependencies"])
    except (json.JSONDecodeError, KeyError):
        return Answer(failure=next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.returncode}"))


def read(dependencies: list[Any]) -> Answer:
    """The answer in pip-audit's JSON."""
    skipped = [one for one in dependencies if "skip_reason" in one]
    found = tuple(
        f"{one['name']} {one['version']}: {known['id']}; {_fix(known['fix_versions'])}"
        for one in dependencies
        for known in one.get("vulns", ())
    )
    return Answer(len(dependencies) - len(skipped), len(skipped), found)


def _fix(versions: list[str]) -> str:
    return f"upgrade to {' or '.join(versions)}" if versions else "no fixed version exists; see the advisory"


def main() -> None:
    """Prints what is vulnerable; exit code 1 if something is, 2 if it is unknown."""
    parser = argparse.ArgumentParser(description="Audit uv.lock for packages with known vulnerabilities.")
    parser.add_argument("--osv", default="", help="URL of another server with the API of OSV, for its queries")
    parser.add_argument("--database", action="append", choices=DATABASES, help="ask this one; default: each in turn")
    options = parser.parse_args()
    osv: str = options.osv
    databases: list[str] = options.database or [*DATABASES]
    with TemporaryDirectory() as folder:
        packages = Path(folder) / "requirements.txt"
        requirements(packages)
        for database in databases:
            answer = ask(database, packages, osv=osv if database == "osv" else "")
            if answer.found:
                print("\n".join(answer.found))
                sys.exit(VULNERABLE)
            if answer.complete:
                print(f"{answer.audited} packages, no known vulnerabilities ({database})")
                return
            why = answer.failure or f"{answer.skipped} of {answer.skipped + answer.audited} packages are unknown there"
            print(f"{database}: not audited: {why}", file=sys.stderr)
    print("error: no advisory database answered for every package; run `make audit` with a network", file=sys.stderr)
    sys.exit(UNAUDITED)


if __name__ == "__main__":
    main()
