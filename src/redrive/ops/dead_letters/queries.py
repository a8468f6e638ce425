"""Dead letters of every kind: found, looked at, and planned on. What is done to them goes through a plan."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from ...journal.redaction import redact, redact_text
from ...ledger.filters import DeadLetterFilter
from ...ledger.model import DeadLetterSummary
from ..defaults import MOST_COUNTED

if TYPE_CHECKING:
    from ...ledger.ledger import Ledger
    from ...ledger.model import Attempt, DeadLetter, DeadLetterStatus, Job

Letter: TypeAlias = DeadLetterSummary

PAGE = 1000
GROUPED = 1000
"""So many are looked at for groups: enough to see what goes on, and as quick with a million of them."""
LONGEST_CHAIN = 100
"""Jobs of one dead letter that are shown: it and its replays."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters. Nothing said: all of them."""

    ids: tuple[int, ...] = ()
    kind: str | None = None
    reason: str | None = None
    error: str | None = None
    """Words that the error has in it, or its signature."""
    since: datetime | None = None
    """When it died, at the earliest."""
    limit: int | None = None
    source: str | None = None
    """Of messages of this source; "*": of any."""
    upto: int | None = None
    """The last one's number: those that died since somebody looked are not meant."""
    until: datetime | None = None
    """When it died last, before this time."""

    def __post_init__(self) -> None:
        """Reject a limit below 1, and times without a time zone."""
        if self.limit is not None and (isinstance(self.limit, bool) or self.limit < 1):
            raise ValueError(f"limit must be at least 1: {self.limit!r}")
        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                raise ValueError(f"a datetime needs a time zone: {time!r}")

    def require_filter(self) -> Selection:
        """The same; ValueError: it selects everything."""
        if self.everything:
            raise ValueError(
                "no dead letters selected; pass ids, kind, error, reason, since or until, because an empty selection means all"
            )
        return self

    @property
    def everything(self) -> bool:
        """Whether nothing narrows it down; a limit does not."""
        narrowing = (self.kind, self.reason, self.error, self.since, self.until, self.source)
        return not self.ids and all(each is None for each in narrowing)


def numbers(ids: Collection[int | str], /) -> tuple[int, ...]:
    """The ids of dead letters, which may come as text."""
    return tuple(int(one) for one in ids)


@dataclass(frozen=True, slots=True)
class Group:
    """Dead letters of one kind that died of one cause."""

    kind: str
    signature: str
    error: str | None
    """Of the newest."""
    count: int
    first: datetime
    last: datetime
    letter_id: int
    """The newest of them."""


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt that did not end well."""

    number: int
    outcome: str
    worker: str | None
    reason: str | None
    error: str | None
    started_at: datetime | None
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class Drive:
    """One of the jobs that were to get this work done."""

    id: int
    state: str
    """As people call it."""
    attempts: int
    crashes: int
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    worker: str | None
    replay_of: int | None
    tries: tuple[Try, ...]


@dataclass(frozen=True, slots=True)
class LetterReport:
    """All that is known of one dead letter, without secrets."""

    letter: Letter
    payload: Any
    """What is in it, as JSON or as text; None where it is neither."""
    payload_bytes: int
    headers: Mapping[str, str]
    ids: Mapping[str, str]
    """Correlation ids."""
    jobs: tuple[Drive, ...]
    """The first one first; then its replays."""
    now: datetime


def listed(
    ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, /, *, before: int | None = None
) -> list[Letter]:
    """The newest first. before: older ones than this."""
    most = 100 if selection.limit is None else selection.limit
    return _some(ledger, selection, status, before=before, limit=most, newest=True)


def counted(ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, /) -> int:
    """How many match, counted up to one more than MOST_COUNTED."""
    from ...ledger.queries import dead_letters as lists  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        return lists.count(connection, _filter(selection, status)._replace(ids=None), most=MOST_COUNTED + 1)


def pending(ledger: Ledger, selection: Selection, /, *, after: int = 0) -> Iterator[Letter]:
    """Those that may be acted on, the oldest first, page by page. after: those behind this number."""
    left = selection.limit
    before = None if selection.upto is None else selection.upto + 1
    while left is None or left > 0:
        most = PAGE if left is None else min(PAGE, left)
        page = _some(ledger, selection, "pending", after=after, before=before, limit=most)
        yield from page
        if len(page) < most:
            return
        after = page[-1].id
        left = None if left is None else left - len(page)


def grouped(ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, /) -> list[Group]:
    """The newest GROUPED of them, put together by kind and signature; the largest group first."""
    groups: dict[tuple[str, str], list[Letter]] = {}
    for one in _some(ledger, selection, status, limit=GROUPED, newest=True):
        groups.setdefault((one.kind, one.signature or one.reason), []).append(one)
    made = [
        Group(kind, signature, of[0].error, len(of), of[-1].created_at, max(one.died_at for one in of), of[0].id)
        for (kind, signature), of in groups.items()
    ]
    return sorted(made, key=lambda group: (-group.count, group.kind, group.signature))


def _some(ledger: Ledger, selection: Selection, status: DeadLetterStatus | None, /, **page: Any) -> list[Letter]:
    from ...ledger.queries import dead_letters as lists  # noqa: PLC0415  # SQLAlchemy: not before a ledger is open

    with ledger.reading() as connection:
        return lists.summaries(connection, _filter(selection, status), **page)


def _filter(selection: Selection, status: DeadLetterStatus | None) -> DeadLetterFilter:
    names = ("kind", "reason", "error", "since", "until", "source")
    fields = {name: getattr(selection, name) for name in names}
    return DeadLetterFilter(ids=selection.ids or None, status=status, **fields)


def shown(ledger: Ledger, letter_id: int, /) -> LetterReport | None:
    """One of them; None: there is none of that number."""
    found = ledger.dead_letters(ids=(letter_id,), limit=1)
    if not found:
        return None
    letter = found[0]
    return LetterReport(
        letter=_letter(letter),
        payload=readable(letter.payload),
        payload_bytes=len(letter.payload),
        headers=redact(letter.headers),
        ids=redact(letter.ids),
        jobs=tuple(_drive(job, ledger.attempts(job.id)) for job in _jobs(ledger, letter)),
        now=ledger.now(),
    )


def readable(payload: bytes, /) -> Any:
    """The payload as a person may see it: JSON, else text, without secrets; None where it is neither."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None
    try:
        found = json.loads(text, parse_constant=_no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair can be written in JSON, and never sent
    except (ValueError, RecursionError):
        return redact_text(text) if text.isprintable() or "\n" in text else None
    return redact(found)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _jobs(ledger: Ledger, letter: DeadLetter) -> list[Job]:
    """From the last one back to the first, by what each is the replay of."""
    chain: list[Job] = []
    next_id = letter.replay_job_id or letter.job_id
    while next_id is not None and len(chain) < LONGEST_CHAIN:
        job = ledger.get(next_id)
        if job is None:
            break
        chain.append(job)
        next_id = job.replay_of
    return chain[::-1]


def _letter(one: DeadLetter) -> Letter:
    return Letter(**{name: getattr(one, name) for name in Letter.__slots__})


def _drive(job: Job, attempts: list[Attempt]) -> Drive:
    state = "replaced by a replay" if job.state == "dropped" and not job.current else job.shown
    return Drive(
        job.id, state, job.attempts, job.crashes, job.created_at, job.due_at, job.ended_at, job.worker, job.replay_of,
        tuple(Try(*(getattr(one, name) for name in Try.__slots__)) for one in attempts),
    )  # fmt: skip
