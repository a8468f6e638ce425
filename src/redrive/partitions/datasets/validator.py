"""Validator: runs the checks on the data of a run, and accepts or rejects it. Only it decides."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...core.text import safe_str
from ...errors import Damaged, Stop, StorageError
from ...journal.redaction import redact_text
from ...worker.outcome import is_ledger_fault
from ..model import DAMAGED, Check, Finding, Verdict
from ..raw.files import Raw
from . import checks as builtin
from .checks import RowCheckFactory

FACTORIES = (
    builtin.row_count,
    builtin.not_null,
    builtin.unique,
    builtin.schema,
    builtin.freshness,
    builtin.drop,
)
MAX_CHARS = 1000
"""Length of what a check says, and of what it measured."""


class _CheckResult(NamedTuple):
    """The finding of a check."""

    name: str
    finding: Finding
    is_final: bool = False
    """If it failed, another extraction would not help."""


class Validator:
    """The checks of one dataset, with a name and a version. Threads may share it."""

    def __init__(self, name: str, version: str, checks: Sequence[Check], /) -> None:
        self.name, self.version = name, version
        self.checks = tuple(_check_check(name, check) for check in checks)

    def validate(self, raw: Raw, /, *, run_id: str | None = None) -> Verdict:
        """Return the verdict on a run.

        A check that raises rejects the run. That counts as any rejection, and nothing is paused,
        since other datasets of the source have other checks. Once the check is fixed, `revalidate`
        validates the same data again.

        Args:
            raw: Its data.
            run_id: The validated run, if another one wrote the data.

        Raises:
            StorageError: The store cannot be read now. Nothing was decided.
            Exception: A check could not use the ledger. Nothing was decided.
        """
        try:
            results = self._run_checks(raw)
        except Damaged as damage:
            results = [_CheckResult(DAMAGED, Finding(False, None, None, str(damage)))]
        failed = [result for result in results if not result.finding.ok]
        worst = (
            next((result for result in failed if result.is_final), failed[0]) if failed else None
        )
        message = "; ".join(f"{result.name}: {result.finding.detail or 'no'}" for result in failed)
        return Verdict(
            run_id=raw.run_id if run_id is None else run_id,
            decision="rejected" if failed else "accepted",
            validator=self.name,
            version=self.version,
            checks=tuple(_as_json(result) for result in results),
            record_count=raw.row_count,
            reason=None if worst is None else worst.name.partition("(")[0],
            message=_shorten(message) if failed else None,
            manifest=raw.manifest.digest,
            final=worst is not None and worst.is_final,
        )

    def _run_checks(self, raw: Raw) -> list[_CheckResult]:
        """Run the checks. Those of rows share one pass over the data."""
        factories = [check for check in self.checks if isinstance(check, RowCheckFactory)]
        findings = _check_rows(raw, factories)
        return [
            _CheckResult(name_of(check), findings[id(check)], check.final)
            if isinstance(check, RowCheckFactory)
            else _run_check(check, raw)
            for check in self.checks
        ]


def name_of(check: Check, /) -> str:
    """Return the name of a check in verdicts."""
    inner = getattr(check, "func", check)  # of a partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def _check_rows(raw: Raw, factories: list[RowCheckFactory]) -> dict[int, Finding]:
    if not factories:
        return {}
    row_checks = [factory.begin(raw) for factory in factories]
    try:
        methods = [check.row for check in row_checks]
        for row in raw.rows():
            for method in methods:
                method(row)
        pairs = zip(factories, row_checks, strict=True)
        return {id(factory): check.finding() for factory, check in pairs}
    except StorageError:
        raise
    except Exception as error:  # the rows cannot be read
        return {id(factory): _check_error(error) for factory in factories}
    finally:
        for check in row_checks:
            check.close()


def _run_check(check: Check, raw: Raw) -> _CheckResult:
    name = name_of(check)
    try:
        value: Any = check(raw)
        if isinstance(value, Finding):
            return _CheckResult(name, value)
        if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # of numpy
            return _CheckResult(name, Finding(bool(value)))
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(
            f"it returned {type(value).__name__}, and a check returns True, False or a Finding"
        )
    except Stop as stop:
        return _CheckResult(name, Finding(False, detail=_shorten(safe_str(stop))), is_final=True)
    except StorageError:
        raise
    except Exception as error:
        if is_ledger_fault(error):
            raise
        return _CheckResult(name, _check_error(error))


def _check_error(error: Exception) -> Finding:
    return Finding(
        False, detail=_shorten(f"the check raised {type(error).__name__}: {safe_str(error)}")
    )


def _as_json(result: _CheckResult) -> dict[str, Any]:
    finding = result.finding
    return {
        "name": result.name,
        "ok": finding.ok,
        "value": _json_value(finding.value),
        "limit": _json_value(finding.limit),
        "detail": _shorten(str(finding.detail)),
    }


def _json_value(value: Any) -> Any:
    """Return a value that JSON can represent, or its text. Never a long one."""
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return _shorten(str(value))
    return value if len(written) <= MAX_CHARS else _shorten(written)


def _shorten(text: str) -> str:
    redacted = redact_text(text)
    return redacted if len(redacted) <= MAX_CHARS else f"{redacted[: MAX_CHARS - 1]}…"


def _check_check(name: str, check: object) -> Check:
    if not callable(check) or isinstance(check, type):
        raise TypeError(
            f"{name}: a check is a function of what a run wrote, such as row_count(min=1), "
            f"not {check!r}"
        )
    if inspect.iscoroutinefunction(check):
        raise TypeError(
            f"{name}: the check {name_of(check)} is async; checks are plain functions: "
            "they run in a thread"
        )
    if check in FACTORIES:
        raise TypeError(
            f"{name}: {name_of(check)} makes a check, and is none itself: {name_of(check)}(...)"
        )
    return check
