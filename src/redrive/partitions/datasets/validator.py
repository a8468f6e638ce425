"""Validator: has checks look at what a run wrote, and says whether it is accepted. The only one who can say so."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from typing import Any

from ...core.text import safe_str
from ...errors import Damaged, Stop, StorageError
from ...journal.redaction import redact_text
from ...worker.outcome import is_ledger_fault
from ..model import DAMAGED, Check, Finding, Verdict
from ..raw.files import Raw
from . import checks as makers
from .row_check import Looking

MAKERS = (makers.row_count, makers.not_null, makers.unique, makers.schema, makers.freshness, makers.drop)
LONGEST = 1000
"""Characters of what a check says, and of what it measured."""


class Validator:
    """The checks of one dataset, under a name and a version. Threads may share it."""

    def __init__(self, name: str, version: str, checks: Sequence[Check], /) -> None:
        self.name, self.version = name, version
        self.checks = tuple(_checked(name, one) for one in checks)

    def judge(self, raw: Raw, /, *, run_id: str | None = None) -> Verdict:
        """The verdict on a run. A StorageError leaves, and nothing was judged, where the store cannot be read just now. So does
        an error of a check that could not use the ledger.

        run_id: the run that is judged, where it looks again at what another has written.

        A check that raises rejects: what nobody could look at is not accepted. It counts as any rejection does, and nothing is
        paused, since other datasets of the source have other checks; once the check is mended, `revalidate` judges the same
        data again.
        """
        try:
            results = self._looked(raw)
        except Damaged as damage:
            results = [(DAMAGED, Finding(False, None, None, str(damage)), False)]
        bad = [(name, finding, final) for name, finding, final in results if not finding.ok]
        worst = next((one for one in bad if one[2]), bad[0]) if bad else None
        return Verdict(
            run_id=raw.run_id if run_id is None else run_id,
            decision="rejected" if bad else "accepted",
            validator=self.name,
            version=self.version,
            checks=tuple(_row(name, finding) for name, finding, _ in results),
            record_count=raw.row_count,
            reason=None if worst is None else worst[0].partition("(")[0],
            message=_cut("; ".join(f"{name}: {finding.detail or 'no'}" for name, finding, _ in bad)) if bad else None,
            manifest=raw.manifest.digest,
            final=worst is not None and worst[2],
        )

    def _looked(self, raw: Raw) -> list[tuple[str, Finding, bool]]:
        """Each check's name, what it found, and whether a no is final; those that go through the rows do so together."""
        together = _together(raw, [one for one in self.checks if isinstance(one, Looking)])
        return [
            (name_of(one), together[id(one)], one.final) if isinstance(one, Looking) else (name_of(one), *_asked(one, raw))
            for one in self.checks
        ]


def name_of(check: Check, /) -> str:
    """What a check is called in verdicts."""
    inner = getattr(check, "func", check)  # a partial
    return str(getattr(inner, "__name__", type(inner).__name__))


def _together(raw: Raw, checks: list[Looking]) -> dict[int, Finding]:
    if not checks:
        return {}
    looks = [one.begin(raw) for one in checks]
    try:
        takers = [look.row for look in looks]
        for row in raw.rows():
            for take in takers:
                take(row)
        return {id(one): look.finding() for one, look in zip(checks, looks, strict=True)}
    except StorageError:
        raise
    except Exception as wrong:  # rows that are none: nobody could look at them
        return {id(one): _raised(wrong) for one in checks}
    finally:
        for look in looks:
            look.close()


def _asked(check: Check, raw: Raw) -> tuple[Finding, bool]:
    try:
        found: Any = check(raw)
        if isinstance(found, Finding):
            return found, False
        if isinstance(found, bool) or type(found).__name__ in ("bool", "bool_"):  # numpy's is none of Python's
            return Finding(bool(found)), False
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError(f"it returned {type(found).__name__}, and a check returns True, False or a Finding")
    except Stop as stop:
        return Finding(False, detail=_cut(safe_str(stop))), True
    except StorageError:
        raise
    except Exception as wrong:
        if is_ledger_fault(wrong):
            raise
        return _raised(wrong), False


def _raised(error: Exception) -> Finding:
    return Finding(False, detail=_cut(f"the check raised {type(error).__name__}: {safe_str(error)}"))


def _row(name: str, finding: Finding) -> dict[str, Any]:
    return {
        "name": name, "ok": finding.ok, "value": _plain(finding.value), "limit": _plain(finding.limit),
        "detail": _cut(str(finding.detail)),
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """As JSON has it, or its text; never long."""
    try:
        written = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return _cut(str(value))
    return value if len(written) <= LONGEST else _cut(written)


def _cut(text: str) -> str:
    shown = redact_text(text)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"


def _checked(name: str, check: object) -> Check:
    if not callable(check) or isinstance(check, type):
        raise TypeError(f"{name}: a check is a function of what a run wrote, such as row_count(min=1), not {check!r}")
    if inspect.iscoroutinefunction(check):
        raise TypeError(f"{name}: the check {name_of(check)} is async; checks are plain functions: they run in a thread")
    if check in MAKERS:
        raise TypeError(f"{name}: {name_of(check)} makes a check, and is none itself: {name_of(check)}(...)")
    return check
