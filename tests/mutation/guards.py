"""Asks mutants of the guards beside the guards themselves while the acceptance tests run; a plugin of pytest."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import acceptance_builders
import pytest
from shared_platform import AsFound

from gpu_tenancy.embedded import platform
from gpu_tenancy.embedded.parts import API_SERVER, Places, Ports
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import plan
from gpu_tenancy.model.source import Source
from mutation.cel_mutants import all_mutants
from mutation.copies import PREFIX, Copies
from mutation.verdict import known

_OTHERS: Final = ("people_escalation", "secrets", "service_accounts")
_WITHOUT: Final = ("guards_actions", "guards_attempts", "guards_twins")
"""Files with guards that do not deny, and with random objects."""
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "admissionregistration.k8s.io"}, {"group": "coordination.k8s.io"}]},
        {"level": "Metadata"},
    ],
}
_FOLDER: Final = TemporaryDirectory(prefix="gpu-tenancy-mutants-")
_LOGS: Final = Path(_FOLDER.name)
_COPIES: Final = Copies({})
_PROBLEMS: Final[list[str]] = []
_APPLIED: Final[dict[str, Any]] = {}
"""The guards that tests have applied, by name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which mutants are asked."""
    parser.addoption(
        "--mutants",
        default="",
        help="names of mutants begin with one of these, after commas; `open`: those that are open",
    )
    parser.addoption("--everywhere", action="store_true", help="mutants of what several guards read in each of them")
    parser.addoption("--every", type=int, default=1, help="one of so many of them")
    parser.addoption("--record", action="store_true", help="write the survivors into tests/mutation/survivors")


def pytest_configure(config: pytest.Config) -> None:
    """Selects the mutants."""
    every, prefix = int(config.getoption("--every") or 1), str(config.getoption("--mutants"))
    found, listed = {one.name: one for one in all_mutants()}, known("guards")
    names = listed.chosen(found, prefix, every, new=bool(config.getoption("--record")))
    _COPIES.readers, _COPIES.everywhere = listed.readers, bool(config.getoption("--everywhere"))
    _COPIES.alive = {name: found[name] for name in names if every == 1 or not listed.lists(name)}
    (_LOGS / "policy.json").write_text(json.dumps(_AUDIT), encoding="utf-8")
    config.add_cleanup(_FOLDER.cleanup)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Asks the mutants by the requests of a test."""
    _COPIES.wait(_LOGS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Judges them by what the test has asked."""
    _COPIES.read(_LOGS)
    _COPIES.forget()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes whose requests come next."""
    _COPIES.test = item.nodeid


def files() -> list[str]:
    """The files of acceptance tests whose requests mutants are asked."""
    folder = Path(acceptance_builders.__file__).parent
    found = {file.stem.removeprefix("test_acceptance_") for file in folder.glob("test_acceptance_guards_*.py")}
    return sorted({*found, *_OTHERS} - {*_WITHOUT})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails for survivors that are not known; writes them if `--record` is given."""
    results, listed = _COPIES.results, known("guards")
    results.survived = [*_COPIES.alive]
    names = {one.name for one in all_mutants()}
    if session.testsfailed:
        _PROBLEMS.append("tests failed, which have asked nothing or something else: nothing is recorded or compared")
        return
    if session.config.getoption("--record"):
        results.record("guards", listed, names)
        return
    _PROBLEMS.extend(results.problems(listed, names))
    if _PROBLEMS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures by guard."""
    for line in (_COPIES.results.table(known("guards")), *_PROBLEMS):
        terminalreporter.write_line(line)


def _asks() -> bool:
    return Path(_COPIES.test.partition("::")[0]).stem.removeprefix("test_acceptance_") in files()


def _audited() -> None:
    """Has platforms write an audit log."""
    flags = platform.flags

    def more(part: str, places: Places, ports: Ports) -> list[str]:
        own = [
            f"--audit-policy-file={_LOGS / 'policy.json'}",
            f"--audit-log-path={_LOGS / f'{ports.api}.log'}",
            # Else it is renamed at 100 MB, which hundreds of copies write in a few minutes.
            "--audit-log-maxsize=1000000",
        ]
        audited = part == API_SERVER and _COPIES.test.startswith("tests/acceptance/")
        return [*flags(part, places, ports), *(own if audited else [])]

    setattr(platform, "flags", more)  # noqa: B010 - a function


def _followed() -> None:
    """Follows which stacks tests declare, and which guards they apply and delete."""
    declared, apply, delete = acceptance_builders.declared, Cluster.apply, Cluster.delete

    def declaring(sections: Any) -> Any:
        _COPIES.plans.append(plan(load(Source(sections))).guards)
        return declared(sections)

    def applying(self: Cluster, manifest: Any, **options: Any) -> Any:
        answer = apply(self, manifest, **options)
        name = manifest["metadata"].get("name", "")
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            _APPLIED[name] = manifest
        elif manifest["kind"] == "ValidatingAdmissionPolicyBinding" and name.startswith(PREFIX) and _asks():
            _COPIES.put(self, _APPLIED[name], manifest)
        return answer

    def settled(self: AsFound) -> None:
        """The copies of a guard stay as long as it does: what was deleted is waited for."""
        self.cluster.wait_for(vars(AsFound)["_settled"].__get__(self), timeout=120, what="what was deleted to be gone")

    def deleting(self: Cluster, reference: Reference, **options: Any) -> None:
        if reference.kind == "ValidatingAdmissionPolicyBinding" and reference.name.startswith(PREFIX):
            _COPIES.read(_LOGS)
            _COPIES.take(reference.name)
        delete(self, reference, **options)

    setattr(AsFound, "check", settled)  # noqa: B010 - a method
    setattr(acceptance_builders, "declared", declaring)  # noqa: B010 - a function
    setattr(Cluster, "apply", applying)  # noqa: B010 - a method
    setattr(Cluster, "delete", deleting)  # noqa: B010 - a method


# Before pytest imports the tests, which take functions by their names.
_audited()
_followed()
