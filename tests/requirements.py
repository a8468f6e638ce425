"""Maps requirements to the tests that show them, with their results.

As a pytest plugin it records the outcome of every test marked `@pytest.mark.req("B-4", ...)` in one file for each interpreter
under .cache/requirements/. A later run replaces the tests that it ran, and keeps the rest.

As a program (`python -m tests.requirements`) it prints a line for each number of docs/requirements.md. It fails if a number has
no passing test, unless tests/not_yet.txt lists it. That list only shrinks: a number with a passing test may not be in it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
NUMBERS = ROOT / "docs" / "requirements.md"
NOT_YET = ROOT / "tests" / "not_yet.txt"
# A variable, because the tests of this file run pytest in other folders.
RECORDS = Path(os.environ.get("REDRIVE_REQUIREMENTS", ROOT / ".cache" / "requirements"))

LINE = re.compile(r"- (?P<number>[A-Z]-\d+)(?: ★)?(?P<later> ◇)? ")


class Shown(NamedTuple):
    """The requirements that one test shows."""

    numbers: tuple[str, ...]
    outcome: str
    """passed, failed or skipped."""


def requirements(text: str) -> dict[str, bool]:
    """Return every number in order, True for those that are for later."""
    return {found["number"]: bool(found["later"]) for line in text.splitlines() if (found := LINE.match(line))}


# ---- the plugin ----

SHOWN = pytest.StashKey[dict[str, Shown]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SHOWN] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = requirements(NUMBERS.read_text(encoding="utf-8"))
    for item in items:
        for number in numbers_of(item):
            if number not in known:
                raise pytest.UsageError(f"{item.nodeid}: there is no requirement {number!r} in docs/{NUMBERS.name}")


def numbers_of(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("req"):
        if not marker.args or marker.kwargs or not all(isinstance(number, str) for number in marker.args):
            raise pytest.UsageError(f'{item.nodeid}: write @pytest.mark.req("B-4", "B-5")')
        yield from marker.args


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]  # a hook wrapper receives the result
    numbers = tuple(dict.fromkeys(numbers_of(item)))
    if numbers:
        shown = item.config.stash[SHOWN]
        # Set-up, call and tear-down each report. A failure in one of them is kept.
        if item.nodeid not in shown or report.outcome != "passed":
            shown[item.nodeid] = Shown(numbers, report.outcome)
    return report  # type: ignore[return-value]  # likewise


def pytest_sessionfinish(session: pytest.Session) -> None:
    shown = session.config.stash[SHOWN]
    if not shown:
        return
    RECORDS.mkdir(parents=True, exist_ok=True)
    part = os.environ.get("PYTEST_XDIST_WORKER", "")  # parallel processes have separate files
    record = RECORDS / f"python{sys.version_info.major}.{sys.version_info.minor}{part and '-' + part}.json"
    earlier = read(record) if record.exists() else {}
    record.write_text(json.dumps(earlier | shown, indent=1), encoding="utf-8")


def read(record: Path) -> dict[str, Shown]:
    stored = json.loads(record.read_text(encoding="utf-8"))
    return {test: Shown(tuple(numbers), outcome) for test, (numbers, outcome) in stored.items()}


# ---- the table ----


def table(
    numbers: Mapping[str, bool], records: Mapping[str, Mapping[str, Shown]], not_yet: set[str]
) -> tuple[list[str], list[str]]:
    """Return the lines to print, and the problems."""
    lines: list[str] = []
    later: list[str] = []
    wrong = [f"{number} stands in {NOT_YET.name} but is no requirement" for number in sorted(not_yet - set(numbers))]
    for number, is_later in numbers.items():
        outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
        for interpreter, tests in records.items():
            for test, shown in tests.items():
                if number in shown.numbers:
                    # Passing cases of a test count as one. Failed ones are listed separately.
                    name = test.partition("[")[0] if shown.outcome == "passed" else f"{test} ({interpreter})"
                    outcomes[shown.outcome].append(name)
        passed = list(dict.fromkeys(outcomes["passed"]))
        if outcomes["failed"]:
            state, tests_of_it = "FAILED", outcomes["failed"]
        elif passed:
            state, tests_of_it = "ok", passed
        elif outcomes["skipped"]:
            state, tests_of_it = "SKIPPED", outcomes["skipped"]
        else:
            state, tests_of_it = "later" if is_later else "not yet" if number in not_yet else "MISSING", []
        if state.isupper() and not (state == "SKIPPED" and (is_later or number in not_yet)):
            wrong.append(f"{number} {state}: {tests_of_it[0] if tests_of_it else 'no test shows it'}")
        if state == "ok" and number in not_yet:
            wrong.append(f"{number} is shown by {passed[0]}: take it out of {NOT_YET.name}")
        more = f" (+{len(tests_of_it) - 1})" if len(tests_of_it) > 1 else ""
        line = f"{number:<5} {state:<8} {tests_of_it[0] if tests_of_it else ''}{more}".rstrip()
        (later if state == "later" else lines).append(line)
    if later:
        lines += ["", "For later:", *later]
    return lines, wrong


def main() -> int:
    numbers = requirements(NUMBERS.read_text(encoding="utf-8"))
    listed = (line.partition("#")[0].strip() for line in NOT_YET.read_text(encoding="utf-8").splitlines())
    not_yet = {number for number in listed if number}
    records: dict[str, dict[str, Shown]] = {}
    for record in sorted(RECORDS.glob("*.json")):
        records.setdefault(record.stem.partition("-")[0], {}).update(read(record))
    lines, wrong = table(numbers, records, not_yet)
    print("\n".join(lines), end="\n\n")
    for problem in wrong:
        print(f"WRONG: {problem}")
    shown = sum(" ok " in line for line in lines)
    print(f"{shown} of {len(numbers)} requirements shown, {len(not_yet)} not yet built, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
