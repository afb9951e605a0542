"""Mutants of the policy packs, and the tests of `tests/policy` that fail for each.

It is a plugin of pytest, and runs mutants in place of the tests that pytest has collected. What is inside of a function
is changed in the function itself, so that a test takes as long as its rule does. What is evaluated by an import is
changed in a fork that imports the packs again, and runs the cases of rules.
"""

import gc
import os
import signal
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.machinery import SourceFileLoader
from inspect import signature
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest
import yaml

from mutation.python_mutants import Mutant, mutants
from mutation.verdict import Results, known, part_of

ROOT: Final = Path(__file__).parents[2]
MARKS: Final = "not (platform or process or slow)"
"""Of the tests that notice mutants."""
KILLERS: Final = Path(__file__).with_name("killers.yaml")
FOLDERS: Final = ("policy/workloads/workload_rules", "policy/clouds/cloud_rules", "policy/rule_engine")
_MODULES: Final = ("workload_rules", "cloud_rules", "rule_engine", "cases", "policy_builders", "test_policy_rules")
_CACHE: Final = type(lru_cache(len))
_OTHERS: Final = ("document", "generated_pods", "kit_builders", *_MODULES)
_SMALL: Final = tuple(f"test_policy_{name}.py" for name in ("found", "patches", "pools", "stacks", "workloads"))
"""Files with tests of single functions, which an import of a changed module is tried with before all cases."""
_SECONDS: Final = 20.0
"""A test that takes more processor time than this does not end."""
_PATHS: Final = tuple(str(ROOT / folder) for folder in FOLDERS)


class _LateError(BaseException):
    """A test takes too long; no Exception, which the evaluator would report as a fault of one rule, and go on."""


Key = tuple[str, str, int]
"""File, qualified name and first line of a function."""


@dataclass(slots=True)
class Test:
    """A test that needs no fixture.

    Attributes:
        module: of the rule that it is about, if it is about one.
        reached: the functions of the packs that it calls; None if that was not measured.
    """

    name: str
    module: str
    run: Callable[[], object]
    seconds: float = _SECONDS
    reached: set[Key] | None = None

    @property
    def key(self) -> str:
        """It instead of its name, which is long."""
        return checksum(self.name)


def checksum(name: str) -> str:
    """Of a test's name."""
    return f"{zlib.crc32(name.encode()):08x}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which mutants run."""
    parser.addoption("--mutants", default="", help="names of mutants begin with this")
    parser.addoption("--every", type=int, default=1, help="one of so many of them, the same ones until packs change")
    parser.addoption("--record", action="store_true", help="write the survivors into tests/mutation/survivors")


def pytest_configure() -> None:
    """Has YAML be read and written in C: in Python it takes half of the time of tests."""
    loader, dumper = getattr(yaml, "CSafeLoader", yaml.SafeLoader), getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    setattr(yaml, "safe_load", partial(yaml.load, Loader=loader))  # noqa: B010
    setattr(yaml, "safe_dump", partial(yaml.dump, Dumper=dumper))  # noqa: B010


def all_mutants() -> dict[str, Mutant]:
    """The mutants of all packs, by name."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.py"))]
    return {one.name: one for file in files for one in mutants(file)}


def turn() -> int:
    """A number that is the same as long as the packs are: other changes do not change which mutants are sampled."""
    files = (file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.py")))
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def read_killers() -> dict[str, list[str]]:
    """By part, the tests that noticed its mutants when they were recorded, the most useful first."""
    found: dict[str, str] = yaml.safe_load(KILLERS.read_bytes())
    return {part: keys.split() for part, keys in found.items()}


def write_killers(killers: Mapping[str, Sequence[str]]) -> None:
    """Writes the file that `read_killers` reads: tests by checksums of their names, which are long."""
    text = yaml.safe_dump({part: " ".join(keys) for part, keys in sorted(killers.items())}, width=10**6)
    KILLERS.write_text(text, encoding="utf-8")


def tests_of(items: Sequence[pytest.Item]) -> list[Test]:
    """The tests that have parameters only."""
    found: list[Test] = []
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("skip"):
            continue
        parameters: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        if {*signature(item.obj).parameters} - {*parameters}:
            continue
        module = parameters["case"].rule.check.__module__.rpartition(".")[2] if "case" in parameters else ""
        found.append(Test(item.nodeid, module, lambda item=item, parameters=parameters: item.obj(**parameters)))
    return found


@cache
def _real(path: str) -> str:
    return os.path.realpath(path)


def _key(code: CodeType) -> Key:
    return _real(code.co_filename), code.co_qualname, code.co_firstlineno


class Functions:
    """The functions of the packs, and caches of results."""

    def __init__(self) -> None:
        self.live: dict[Key, list[FunctionType]] = {}
        self.caches: list[Any] = []
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and _real(one.__code__.co_filename).startswith(_PATHS):
                self.live.setdefault(_key(one.__code__), []).append(one)
            elif isinstance(one, _CACHE):
                self.caches.append(one)

    def forget(self) -> None:
        """Clears the caches."""
        for one in self.caches:
            one.cache_clear()


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def measure(tests: list[Test], functions: Functions) -> None:
    """Notes of each test how long it takes, and which functions it calls; once, for it takes longer than all tests."""
    if not tests or tests[0].reached is not None:
        return
    keys: dict[CodeType, Key | None] = {}
    for test in tests:
        functions.forget()
        reached = test.reached = set[Key]()

        def called(frame: FrameType, _: str, __: object, reached: set[Key] = reached) -> None:
            code = frame.f_code
            if code not in keys:
                key = _key(code)
                keys[code] = key if key[0].startswith(_PATHS) else None
            if key := keys[code]:
                reached.add(key)

        start = time.process_time()
        sys.settrace(called)
        passed = passes(test.run)
        sys.settrace(None)
        test.seconds = time.process_time() - start
        if not passed:
            raise pytest.UsageError(f"{test.name} fails without any mutant")


def passes(test: Callable[[], object], seconds: float = _SECONDS) -> bool:
    """Whether a test passes, in so many seconds of processor time."""

    def late(*_: object) -> None:
        raise _LateError

    signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        test()
    except pytest.skip.Exception:
        return True
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - pytest's failures are no Exception
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return True


def judge_function(mutant: Mutant, tests: list[Test], functions: Functions) -> str:
    """The first test that fails while a function is another one; empty if none does."""
    assert mutant.within is not None
    file = str(mutant.file.resolve())
    changed = {_key(code): code for code in _codes(compile(mutant.tree(), file, "exec"))}
    outer, nested = (file, *mutant.within), f"{mutant.within[0]}.<locals>"
    keys = [key for key in functions.live if key == outer or (key[0] == file and key[1].startswith(nested))]
    reaching = [test for test in tests if test.reached is None or test.reached.intersection(keys)]
    if not reaching:  # only an import calls it
        return judge_import(mutant)
    originals = [(function, function.__code__) for key in keys for function in functions.live[key]]
    for function, code in originals:
        if changed[_key(code)].co_freevars == code.co_freevars:
            function.__code__ = changed[_key(code)]
    try:
        return _first_failure(reaching, functions)
    finally:
        for function, code in originals:
            function.__code__ = code
        functions.forget()


def _first_failure(tests: list[Test], functions: Functions) -> str:
    functions.forget()
    for test in tests:
        if not passes(test.run, 2 + 3 * test.seconds):
            return test.name
    return ""


def judge_import(mutant: Mutant) -> str:
    """The first case that fails with a changed module; in a fork, since it imports all packs again."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        answer = "import"
        try:
            answer = _first_case(mutant)
        finally:
            os.write(writing, answer.encode()[:1000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer


def _first_case(mutant: Mutant) -> str:
    file, tree = str(mutant.file.resolve()), mutant.tree()
    original = SourceFileLoader.get_code

    def code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        found = os.path.realpath(self.path)
        return compile(tree, file, "exec") if found == file else original(self, fullname)

    setattr(SourceFileLoader, "get_code", code)  # noqa: B010
    for name in [name for name in sys.modules if name.partition(".")[0] in _MODULES]:
        del sys.modules[name]
    import test_policy_rules as rules  # noqa: PLC0415 - again, with the mutant

    cases: list[tuple[Callable[..., None], Any]] = [
        *((rules.test_each_changed_part_is_reported_with_place_value_and_fix, one) for one in rules.of_breaks()),
        *((rules.test_valid_resources_have_no_findings_by_case, one) for one in rules.of_cases()),
        *((rules.test_each_unknown_value_is_reported, one) for one in rules.of_unknowns()),
    ]
    own = [case for case in cases if _module(case[1]) == mutant.file.stem]
    return (
        _first_failing(own)
        or ("docs/policies.md" if _changes_the_page() else "")
        or _other_failure([f"{ROOT}/tests/policy/{name}" for name in _SMALL])
        or _first_failing([case for case in cases if case not in own])
        or _other_failure([f"--ignore={ROOT}/tests/policy/test_policy_rules.py", f"{ROOT}/tests/policy"])
    )


def _module(case: Any) -> str:
    return case.values[0].rule.check.__module__.rpartition(".")[2]


def _first_failing(cases: Sequence[tuple[Callable[..., None], Any]]) -> str:
    return next((str(one.id) for test, one in cases if not passes(partial(test, *one.values), 2)), "")


def _changes_the_page() -> bool:
    """Whether the page of all rules and their settings is another one, which a test of documentation compares."""
    sys.modules.pop("document", None)
    import document  # noqa: PLC0415 - again, with the mutant

    return document.page() != document.PAGE.read_text(encoding="utf-8")


def _other_failure(files: Sequence[str]) -> str:
    """Whether a test fails that is no case of a rule."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _OTHERS or name.startswith("test_policy")]:
        del sys.modules[name]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    options = ["-x", "-n", "0", "-p", "no:cacheprovider", "-m", MARKS]
    return "tests/policy" if pytest.main([*options, "--rootdir", str(ROOT), *files]) else ""


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Runs mutants in place of tests."""
    option = session.config.getoption
    found = all_mutants()
    listed, every, prefix = known("packs"), int(option("--every") or 1), str(option("--mutants"))
    names = listed.chosen(found, prefix, every, turn(), new=bool(option("--record")))
    tests, functions, results = tests_of(session.items), Functions(), Results()
    if every > 1:
        # What an import evaluates takes seconds a mutant.
        names = [name for name in names if found[name].within and not listed.lists(name)]
    killers = read_killers()
    for part, of_part in groupby(sorted(names, key=part_of), part_of):
        noticed = Counter(dict.fromkeys(killers.get(part, ()), 0))
        for name in of_part:
            mutant = found[name]
            tests.sort(key=lambda test: (test.key not in noticed, test.module != mutant.file.stem, test.seconds))
            first = [test for test in tests if test.key in noticed or test.module == mutant.file.stem]
            killer = judge_function(mutant, first, functions) if every > 1 and first else ""
            if not killer:
                measure(tests, functions)
                killer = judge_function(mutant, tests, functions) if mutant.within else judge_import(mutant)
            if killer:
                results.killed[name] = killer
                noticed[checksum(killer)] += 1
            else:
                results.survived.append(name)
        killers[part] = [key for key, _ in noticed.most_common() if any(test.key == key for test in tests)]
        if option("--record"):
            # After each part, so that a run that is ended was not for nothing.
            results.record("packs", listed, found)
            write_killers(killers)
    problems = [] if option("--record") else results.problems(listed, found)
    print("", results.table(listed), *problems, sep="\n")
    session.testsfailed = len(problems)
    return True
