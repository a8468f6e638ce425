"""Operations on dead letters: find, replay, discard, edit, export and reveal them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from sqlalchemy import Connection

from ...errors import NotAllowed
from ...journal.redaction import HIDDEN, redact
from ...ledger import validation
from ...ledger.dead_letter import DeadLetter, DeadLetterStatus
from ...ledger.filters import DeadLetterConditions
from ...ledger.jobs import dead_letters
from ...ledger.ledger import Ledger
from ...ledger.model import Attempt, Job
from ...ledger.queries import dead_letters as queries
from ...ledger.queries import job_search
from ...ledger.stats import failures
from ...ledger.stats.failure_groups import FailureSummary
from ...ledger.sweep import Act
from ..context import MAX_CHAIN_JOBS, MAX_REPLAYS, MOST_COUNTED, OperatorContext, check_reason
from ..plans.plan import Plan
from ..project.target import Operated, is_app, job_type_names, payload_problem
from ..render import document
from .model import (
    MAX_GROUPED,
    MAX_GROUPS,
    DeadLetterFilter,
    Group,
    Letter,
    LetterReport,
    ReplayChainJob,
    Revealed,
    failed_attempts,
    readable,
    reveal,
)

PAGE = 1000
MOST_BEYOND = 1_000_000
"""Dead letters beyond the limit of a plan that are counted."""
EXPORTED = (*Letter.__slots__,)
ALL = DeadLetterFilter()
MASKED = "secrets masked"
"""The reason of an export without secrets, which needs none."""


@dataclass(frozen=True, slots=True)
class DeadLetterOperations:
    """Operations on dead letters, as `Operator.dead_letters`. Threads may share one."""

    _context: OperatorContext

    def find(
        self,
        which: DeadLetterFilter = ALL,
        /,
        *,
        status: DeadLetterStatus | None = "pending",
        before: int | None = None,
    ) -> list[Letter]:
        """Return dead letters, newest first.

        Args:
            which: Which dead letters. Without a limit: at most 100.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            before: Only dead letters with a lower id.

        Returns:
            The dead letters.
        """
        limit = 100 if which.limit is None else which.limit
        return _read_page(
            self._context.ledger, which, status, before=before, limit=limit, newest=True
        )

    def groups(
        self, which: DeadLetterFilter = ALL, /, *, status: DeadLetterStatus | None = "pending"
    ) -> list[Group]:
        """Return dead letters, grouped by job type and cause: all of them, not the newest.

        The groups of pending dead letters, also of one job type, come from counters, so their cost
        does not grow. Another filter reads up to 100,000 dead letters.

        Args:
            which: Which dead letters. Ids and limit do not count.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.

        Returns:
            The groups, the largest first, at most 500.
        """
        limits = {"most": MAX_GROUPED, "limit": MAX_GROUPS}
        with self._context.ledger.reading() as connection:
            query = _narrow(connection, which, status)
            if which.jobs is None:
                query = query._replace(ids=None)
            groups, wanted = [], [query]
            if query == DeadLetterConditions(status="pending", kind=which.kind):
                counted = failures.pending_groups(connection, which.kind, MAX_GROUPS)
                groups = _counted_groups(connection, counted)
                # Dead letters without a signature are grouped by their reason, which has no
                # counters.
                kinds = [group.kind for group in counted if not group.signature]
                wanted = [query._replace(kind=kind, signature="") for kind in kinds]
            rows = [
                row for each in wanted for row in queries.group_by_cause(connection, each, **limits)
            ]
            newest = queries.by_ids(connection, [row.newest_id for row in rows])
        for row in rows:
            error = newest[row.newest_id].error if row.newest_id in newest else None
            times = (row.first_at, row.last_at)
            groups.append(Group(row.kind, row.cause, error, row.size, *times, row.newest_id))
        groups.sort(key=lambda group: (-group.count, group.kind, group.signature))
        return groups[:MAX_GROUPS]

    def count(
        self, which: DeadLetterFilter = ALL, /, *, status: DeadLetterStatus | None = "pending"
    ) -> int:
        """Return the number of dead letters, counted up to 100,001.

        Args:
            which: Which dead letters. Ids and limit do not count.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.

        Returns:
            The number.
        """
        with self._context.ledger.reading() as connection:
            query = _narrow(connection, which, status)
            if which.jobs is None:
                query = query._replace(ids=None)
            return queries.count(connection, query, most=MOST_COUNTED + 1)

    def get(self, letter_id: int, /) -> LetterReport | None:
        """Return everything that is known about a dead letter.

        Args:
            letter_id: Id of the dead letter.

        Returns:
            The report, or None.
        """
        ledger = self._context.ledger
        letter = _store_edit(ledger, letter_id)
        if letter is None:
            return None
        self._context.open_payload("dead", letter_id, letter.kind)
        return LetterReport(
            letter=Letter(**{name: getattr(letter, name) for name in Letter.__slots__}),
            payload=readable(letter.payload),
            payload_bytes=len(letter.payload),
            headers=redact(letter.headers),
            ids=redact(letter.ids),
            jobs=tuple(
                _replay_chain_job(job, ledger.attempts(job.id)) for job in _jobs_of(ledger, letter)
            ),
            now=ledger.now(),
        )

    def replay(self, which: DeadLetterFilter, /, *, as_kind: str | None = None) -> Plan:
        """Plan to replay dead letters.

        Nothing is changed or recorded before `Operator.apply`.

        Args:
            which: Which dead letters.
            as_kind: Name of the command or handler that runs them, if it was renamed. The job key
                stays the same. Dead letters whose payload does not fit it are skipped.

        Returns:
            The plan.

        Raises:
            ValueError: The filter selects everything, or the app has no command or handler
                `as_kind`.
        """
        self._context.require("replay")
        if as_kind is None:
            return self._plan("replay", which)
        _check_target(self._context.app, as_kind)
        plan = self._plan("replay", which)
        misfits: dict[int, str] = {}
        for start in range(0, plan.count, PAGE):
            ids = plan.ids[start : start + PAGE]
            letters = self._context.ledger.dead_letters(ids=ids, limit=len(ids))
            misfits |= _find_misfits(self._context.app, as_kind, letters)
        ids = tuple(each for each in plan.ids if each not in misfits)
        plan = replace(plan, ids=ids, skipped={**plan.skipped, **misfits}, as_kind=as_kind)
        return self._context.require_plan(plan)

    def discard(self, which: DeadLetterFilter, /) -> Plan:
        """Plan to discard dead letters for good.

        Nothing is changed or recorded before `Operator.apply`.

        Args:
            which: Which dead letters.

        Returns:
            The plan.

        Raises:
            ValueError: The filter selects everything.
        """
        return self._plan("discard", which)

    def replay_edited(
        self,
        letter_id: int,
        payload: bytes,
        /,
        *,
        because: str,
        max_replays: int | None = MAX_REPLAYS,
    ) -> int:
        """Replay a dead letter with another payload. The dead letter keeps its own.

        Args:
            letter_id: Id of the dead letter.
            payload: The new payload.
            because: Why, for the audit log.
            max_replays: Refuse a dead letter that was replayed this often. None: no limit.

        Returns:
            The id of the new job.

        Raises:
            NotAllowed: There is no such dead letter, or it cannot be replayed.
            ValueError: The payload is too large, is no longer JSON, has masks for secrets, or does
                not fit the command. The last is checked if the operator has the app.
        """
        check_reason(because)
        ledger, actor = self._context.ledger, self._context.actor
        letter = _store_edit(ledger, letter_id)
        if letter is None:
            raise NotAllowed(f"dead letter {letter_id} not found")
        self._context.require("replay", letter.kind)
        self._context.require("edit", letter.kind)
        validation.check_payload("payload", payload, ledger.max_payload)
        _check_edit(letter.payload, payload)
        problem = payload_problem(self._context.app, letter.kind, payload)
        if problem is not None:
            raise ValueError(
                f"the payload does not fit {letter.kind}: {problem}. Nothing was changed"
            )
        edits = {letter_id: payload}
        with ledger.connections.write.use() as session:
            options = dead_letters.ReplayOptions(max_replays, edits)
            result = dead_letters.replay(
                session, [letter_id], actor=actor, because=because, options=options
            )
        ledger.notify()
        if letter_id not in result.done:
            raise NotAllowed(
                f"dead letter {letter_id} was not replayed: {result.skipped[letter_id]}"
            )
        return result.done[letter_id]

    def export(
        self,
        which: DeadLetterFilter = ALL,
        /,
        *,
        status: DeadLetterStatus | None = "pending",
        because: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Return dead letters with headers and payloads, oldest first.

        Args:
            which: Which dead letters.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.
            because: Include secrets, for this reason. The audit log records every export.

        Returns:
            An iterator of dictionaries.
        """
        self._context.require("export", which.kind)
        details = {"selection": document(which.as_dict()), "status": status}
        if because is not None:
            check_reason(because)
            self._context.record("dead.export", because, details)
        else:
            self._context.record("dead.export", MASKED, {**details, "masked": True})
        export = _mask if because is None else _raw
        return map(export, _read_whole(self._context.ledger, which, status))

    def reveal(self, letter_id: int, /, *, because: str) -> Revealed:
        """Return the payload of a dead letter with its secrets. This is recorded in the audit log.

        Args:
            letter_id: Id of the dead letter.
            because: Why, for the audit log.

        Returns:
            The payload.

        Raises:
            NotAllowed: There is no such dead letter.
        """
        check_reason(because)
        self._context.require("reveal")
        letter = _store_edit(self._context.ledger, letter_id)
        if letter is None:
            raise NotAllowed(f"dead letter {letter_id} not found")
        self._context.require("reveal", letter.kind)
        details = {"dead": letter_id, "bytes": len(letter.payload)}
        self._context.record("payload.reveal", because, details)
        return reveal(letter.payload)

    def _plan(self, act: Act, which: DeadLetterFilter) -> Plan:
        which.require_narrow()
        self._context.require(act)
        ledger = self._context.ledger
        ids: list[int] = []
        kinds: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        # One at a time: a plan may have a million dead letters.
        for letter in _read_pending(ledger, which):
            ids.append(letter.id)
            kinds[letter.kind] += 1
            reasons[letter.reason] += 1
            errors[letter.signature or letter.reason] += 1
        beyond = _count_beyond(ledger, which, ids[-1]) if which.limit == len(ids) > 0 else 0
        plan = Plan(
            act=act,
            ids=tuple(ids),
            kinds=dict(kinds.most_common()),
            reasons=dict(reasons.most_common()),
            skipped=_skip_reason(ledger, which, ids),
            more=beyond > 0,
            selection=which,
            errors=dict(errors.most_common()),
            beyond=beyond,
        )
        return self._context.require_plan(plan)


def _read_page(
    ledger: Ledger, which: DeadLetterFilter, status: DeadLetterStatus | None, /, **page: Any
) -> list[Letter]:
    with ledger.reading() as connection:
        return queries.summaries(connection, _narrow(connection, which, status), **page)


def _narrow(
    connection: Connection, which: DeadLetterFilter, status: DeadLetterStatus | None
) -> DeadLetterConditions:
    """Return the filter of the ledger, with the ids of the dead letters that its jobs have."""
    query = which.to_query(status)
    if which.jobs is None:
        return query
    ids = job_search.find_letters(connection, which.jobs)
    named = set(which.numbers)
    return query._replace(ids=[each for each in ids if not named or each in named])


def _read_pending(ledger: Ledger, which: DeadLetterFilter) -> Iterator[Any]:
    """Yield the causes of dead letters that can be replayed or discarded, oldest first."""
    after, left = 0, which.limit
    before = None if which.upto is None else which.upto + 1
    while left is None or left > 0:
        limit = PAGE if left is None else min(PAGE, left)
        with ledger.reading() as connection:
            query = _narrow(connection, which, "pending")
            page = queries.causes(connection, query, after=after, before=before, limit=limit)
        yield from page
        if len(page) < limit:
            return
        after = page[-1].id
        left = None if left is None else left - len(page)


def _count_beyond(ledger: Ledger, which: DeadLetterFilter, last_id: int) -> int:
    """Return the number of dead letters that match after the last one of a plan."""
    before = None if which.upto is None else which.upto + 1
    with ledger.reading() as connection:
        query = _narrow(connection, which, "pending")
        return queries.count(connection, query, most=MOST_BEYOND, after=last_id, before=before)


def _skip_reason(ledger: Ledger, which: DeadLetterFilter, ids: Sequence[int]) -> dict[int, str]:
    """Return the ids that were named but are not in the plan, with the reason of each."""
    if not which.ids:
        return {}
    stored = ledger.dead_letters(ids=which.numbers, limit=len(which.numbers))
    statuses: dict[int, str] = {letter.id: letter.status for letter in stored}
    planned = set(ids)
    missing = [letter_id for letter_id in dict.fromkeys(which.numbers) if letter_id not in planned]
    return {
        letter_id: _why_skipped(statuses.get(letter_id)) for letter_id in missing[: which.limit]
    }


def _why_skipped(status: str | None) -> str:
    if status is None:
        return "not found"
    return "does not match" if status == "pending" else f"{status} already"


def _store_edit(ledger: Ledger, letter_id: int) -> DeadLetter | None:
    return next(iter(ledger.dead_letters(ids=(letter_id,), limit=1)), None)


def _read_whole(
    ledger: Ledger, which: DeadLetterFilter, status: DeadLetterStatus | None
) -> Iterator[DeadLetter]:
    """Yield dead letters with their payloads, oldest first, page by page."""
    after, left = 0, which.limit
    with ledger.reading() as connection:
        ids = _narrow(connection, which, status).ids
    while left is None or left > 0:
        page = ledger.dead_letters(
            ids=ids,
            status=status,
            kind=which.kind,
            reason=which.reason,
            error=which.error,
            since=which.since,
            until=which.until,
            source=which.source,
            after=after,
            limit=PAGE if left is None else min(PAGE, left),
        )
        if not page:
            return
        yield from page
        after = page[-1].id
        left = None if left is None else left - len(page)


def _counted_groups(connection: Connection, counted: Sequence[FailureSummary]) -> list[Group]:
    """Return the groups that have a signature, with their newest and oldest dead letter."""
    keys = [(group.kind, group.signature) for group in counted if group.signature]
    ends = queries.ends_of_groups(connection, keys)
    groups = []
    for each in counted:
        if pair := ends.get((each.kind, each.signature)):
            newest, oldest = pair
            times = (oldest.created_at, max(newest.died_at, oldest.died_at))
            names = (each.kind, each.signature, newest.error)
            groups.append(Group(*names, each.pending, *times, newest.id))
    return groups


def _jobs_of(ledger: Ledger, letter: DeadLetter) -> list[Job]:
    """Return the job that died and its replays, oldest first. Read from the newest backwards."""
    chain: list[Job] = []
    next_id = letter.replay_job_id or letter.job_id
    while next_id is not None and len(chain) < MAX_CHAIN_JOBS:
        job = ledger.get(next_id)
        if job is None:
            break
        chain.append(job)
        next_id = job.replay_of
    return chain[::-1]


def _replay_chain_job(job: Job, attempts: list[Attempt]) -> ReplayChainJob:
    is_replaced = job.state == "dropped" and not job.current
    return ReplayChainJob(
        id=job.id,
        state="replaced by a replay" if is_replaced else job.shown,
        attempts=job.attempts,
        crashes=job.crashes,
        created_at=job.created_at,
        due_at=job.due_at,
        ended_at=job.ended_at,
        worker=job.worker,
        replay_of=job.replay_of,
        tries=failed_attempts(attempts),
        edited_by=job.headers.get(dead_letters.EDITED_HEADER),
    )


def _check_edit(before: bytes, after: bytes) -> None:
    """Raise ValueError for a payload that would only fail again."""
    if HIDDEN.encode() in after and HIDDEN.encode() not in before:
        raise ValueError(
            f"the payload has {HIDDEN} in place of a secret; start from `redrive dead export "
            "--raw`. Nothing was changed"
        )
    try:
        json.loads(before)
    except ValueError:
        return
    try:
        json.loads(after)
    except ValueError as wrong:
        raise ValueError(
            f"the payload was JSON, but the new one is not: {wrong}. Nothing was changed"
        ) from None


def _mask(letter: DeadLetter) -> dict[str, Any]:
    return _fields(letter) | {
        "headers": redact(letter.headers),
        "ids": redact(letter.ids),
        "payload": readable(letter.payload),
        "payload_bytes": len(letter.payload),
    }


def _raw(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter with its secrets. The payload is text, or base64 if it is not text."""
    try:
        payload = {"payload_text": letter.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(letter.payload).decode()}
    size = {"payload_bytes": len(letter.payload)}
    return _fields(letter) | {"headers": letter.headers, "ids": letter.ids, **payload, **size}


def _fields(letter: DeadLetter) -> dict[str, Any]:
    return {name: document(getattr(letter, name)) for name in EXPORTED}


def _check_target(app: Operated, kind: str, /) -> None:
    """Check that a job type can take dead letters of another one.

    Raises:
        ValueError: The app is not known, or has no such command or handler.
    """
    if not is_app(app):
        raise ValueError(
            f"as {kind}: the app is not known, so its signature cannot be checked; "
            "pass --ledger module:app. Nothing was changed"
        )
    names = job_type_names(app)
    if kind not in names:
        similar = get_close_matches(kind, names, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"registered: {', '.join(names)}"
        raise ValueError(f"as {kind}: no such command or handler; {hint}. Nothing was changed")


def _find_misfits(app: Operated, kind: str, letters: Iterable[DeadLetter], /) -> dict[int, str]:
    """Return the dead letters whose payload does not fit a job type, with the reason."""
    misfits = {}
    for letter in letters:
        problem = payload_problem(app, kind, letter.payload)
        if problem is not None:
            misfits[letter.id] = f"its payload does not fit {kind}: {problem}"
        elif letter.kind == kind:
            misfits[letter.id] = f"it is of {kind} already; replay it without --as"
    return misfits
