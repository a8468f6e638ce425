"""Operations on dead letters: find, replay, discard, edit, export and reveal them."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import NotAllowed
from ...journal.redaction import HIDDEN, redact
from ...ledger import validation
from ...ledger.jobs import dead_letters
from ...ledger.jobs.sweeps import Act
from ...ledger.ledger import Ledger
from ...ledger.model import Attempt, DeadLetter, DeadLetterStatus, Job
from ...ledger.queries import dead_letters as queries
from ..context import MAX_CHAIN_JOBS, MAX_REPLAYS, MOST_COUNTED, OperatorContext, check_reason
from ..plans.plan import Plan
from ..project.target import payload_problem
from ..render import document
from .model import (
    GROUPED,
    DeadLetterFilter,
    Drive,
    Group,
    Letter,
    LetterReport,
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
        """Return the newest 1,000 dead letters, grouped by job type and cause.

        Args:
            which: Which dead letters.
            status: `"pending"`, `"replaying"`, `"replayed"` or `"discarded"`. None: all.

        Returns:
            The groups, the largest first.
        """
        letters = _read_page(self._context.ledger, which, status, limit=GROUPED, newest=True)
        groups: dict[tuple[str, str], list[Letter]] = {}
        for letter in letters:
            groups.setdefault((letter.kind, letter.signature or letter.reason), []).append(letter)
        return sorted(
            (_group(*key, members) for key, members in groups.items()),
            key=lambda group: (-group.count, group.kind, group.signature),
        )

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
            query = which.to_query(status)._replace(ids=None)
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
        return LetterReport(
            letter=Letter(**{name: getattr(letter, name) for name in Letter.__slots__}),
            payload=readable(letter.payload),
            payload_bytes=len(letter.payload),
            headers=redact(letter.headers),
            ids=redact(letter.ids),
            jobs=tuple(_drive(job, ledger.attempts(job.id)) for job in _jobs_of(ledger, letter)),
            now=ledger.now(),
        )

    def replay(self, which: DeadLetterFilter, /) -> Plan:
        """Plan to replay dead letters.

        Nothing is changed or recorded before `Operator.apply`.

        Args:
            which: Which dead letters.

        Returns:
            The plan.

        Raises:
            ValueError: The filter selects everything.
        """
        return self._plan("replay", which)

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
        validation.check_payload("payload", payload, ledger.max_payload)
        _check_edit(letter.payload, payload)
        problem = payload_problem(self._context.app, letter.kind, payload)
        if problem is not None:
            raise ValueError(
                f"the payload does not fit {letter.kind}: {problem}. Nothing was changed"
            )
        edits = {letter_id: payload}
        with ledger.connections.write.use() as session:
            result = dead_letters.replay(
                session,
                [letter_id],
                actor=actor,
                because=because,
                max_replays=max_replays,
                edits=edits,
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
            because: Include secrets, for this reason. It is recorded in the audit log.

        Returns:
            An iterator of dictionaries.
        """
        if because is not None:
            check_reason(because)
            details = {"selection": document(which.as_dict()), "status": status}
            self._context.record("dead.export", because, details)
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
        letter = _store_edit(self._context.ledger, letter_id)
        if letter is None:
            raise NotAllowed(f"dead letter {letter_id} not found")
        details = {"dead": letter_id, "bytes": len(letter.payload)}
        self._context.record("payload.reveal", because, details)
        return reveal(letter.payload)

    def _plan(self, act: Act, which: DeadLetterFilter) -> Plan:
        which.require_narrow()
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
        return Plan(
            act=act,
            ids=tuple(ids),
            kinds=dict(kinds.most_common()),
            reasons=dict(reasons.most_common()),
            skipped=_skip_reason(ledger, which, set(ids)),
            more=beyond > 0,
            selection=which,
            errors=dict(errors.most_common()),
            beyond=beyond,
        )


def _read_page(
    ledger: Ledger, which: DeadLetterFilter, status: DeadLetterStatus | None, /, **page: Any
) -> list[Letter]:
    with ledger.reading() as connection:
        return queries.summaries(connection, which.to_query(status), **page)


def _read_pending(ledger: Ledger, which: DeadLetterFilter, *, after: int = 0) -> Iterator[Letter]:
    """Yield dead letters that can be replayed or discarded, oldest first, page by page."""
    left = which.limit
    before = None if which.upto is None else which.upto + 1
    while left is None or left > 0:
        limit = PAGE if left is None else min(PAGE, left)
        page = _read_page(ledger, which, "pending", after=after, before=before, limit=limit)
        yield from page
        if len(page) < limit:
            return
        after = page[-1].id
        left = None if left is None else left - len(page)


def _count_beyond(ledger: Ledger, which: DeadLetterFilter, last_id: int) -> int:
    """Return the number of dead letters that match after the last one of a plan."""
    before = None if which.upto is None else which.upto + 1
    query = which.to_query("pending")
    with ledger.reading() as connection:
        return queries.count(connection, query, most=MOST_BEYOND, after=last_id, before=before)


def _skip_reason(ledger: Ledger, which: DeadLetterFilter, planned: set[int]) -> dict[int, str]:
    """Return the ids that were named but are not in the plan, with the reason of each."""
    if not which.ids:
        return {}
    stored = ledger.dead_letters(ids=which.numbers, limit=len(which.numbers))
    statuses: dict[int, str] = {letter.id: letter.status for letter in stored}
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
    while left is None or left > 0:
        page = ledger.dead_letters(
            ids=which.numbers or None,
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


def _group(kind: str, signature: str, letters: list[Letter]) -> Group:
    newest, oldest = letters[0], letters[-1]
    last = max(letter.died_at for letter in letters)
    return Group(kind, signature, newest.error, len(letters), oldest.created_at, last, newest.id)


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


def _drive(job: Job, attempts: list[Attempt]) -> Drive:
    is_replaced = job.state == "dropped" and not job.current
    return Drive(
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
