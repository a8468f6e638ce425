"""Operations on pauses by hand: of the app, a job type, a source or a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches

from ...errors import NotAllowed
from ...ledger.jobs import parking
from ...ledger.jobs import pauses as stored
from ...ledger.jobs.pauses import Scope
from ...ledger.queries import overview
from ...messages.queries import latest_by_source
from ...partitions.control.plane import ControlPlane
from ...partitions.queries import PartitionQueries
from ...partitions.store.rows import POLICY
from ..context import OperatorContext, check_reason
from ..overview.schedules import schedules
from ..partitions.datasets import terms_of
from ..project.target import job_type_names, source_names
from ..workers import registered_job_types, registered_sources
from .model import PauseLine, describe_pause, pause_line, subject_of

MAX_COMPARED = 1000
"""Known names that are compared with an unknown one."""
MAX_SUGGESTED = 3
OVERVIEW = "see `redrive overview`"


@dataclass(frozen=True, slots=True)
class PauseOperations:
    """Operations on pauses by hand, as `Operator.pauses`. Threads may share one.

    Workers obey within a second. Running work finishes.
    """

    _context: OperatorContext

    def find(self) -> list[PauseLine]:
        """Return the pauses that have not ended.

        Returns:
            The pauses: of the app first, then by scope and name.
        """
        ledger = self._context.ledger
        with ledger.reading() as connection:
            return [pause_line(each) for each in stored.read_pauses(connection, ledger.now())]

    def pause(
        self,
        scope: Scope,
        name: str = "",
        /,
        *,
        because: str,
        until: datetime | None = None,
        force: bool = False,
    ) -> PauseLine:
        """Pause something by hand, or change its pause.

        Args:
            scope: `"app"`, `"job type"`, `"source"` or `"schedule"`.
            name: Name of the job type, source or schedule. Empty for the app.
            because: Why, for the audit log.
            until: When the pause ends. None: when it is resumed.
            force: Also accept a name that neither the ledger nor a worker knows.

        Returns:
            The pause.

        Raises:
            NotAllowed: The name is unknown. Nothing was changed.
            ValueError: The name or the end is not valid. Nothing was changed.
        """
        check_reason(because)
        stored.check_scope(scope, name)
        self._require(scope, name)
        if not force:
            self.check_known(scope, name)
        ledger, actor = self._context.ledger, self._context.actor
        now = ledger.now()
        with ledger.reading() as connection:
            earlier = stored.read_pauses(connection, now).own(scope, name)
        with ledger.connections.write.use() as session:
            paused = stored.pause(session, scope, name, until=until, actor=actor, because=because)
        replaced = None if earlier is None else describe_pause(earlier)
        return replace(pause_line(paused), replaced=replaced)

    def resume(self, scope: Scope, name: str = "", /, *, because: str) -> None:
        """End a pause by hand. A schedule that missed runs makes up for them.

        A source that was paused for its datasets alone is resumed too.

        Args:
            scope: `"app"`, `"job type"`, `"source"` or `"schedule"`.
            name: Name of the job type, source or schedule. Empty for the app.
            because: Why, for the audit log.

        Raises:
            NotAllowed: It is not paused by hand. Nothing was changed.
        """
        check_reason(because)
        stored.check_scope(scope, name)
        self._require(scope, name)
        ledger, actor = self._context.ledger, self._context.actor
        with ledger.connections.write.use() as session:
            was_paused = stored.resume(session, scope, name, actor=actor, because=because)
        if scope == "source":
            was_paused |= self._unpause_datasets(name, because, is_outage=False)
        if not was_paused:
            raise NotAllowed(self._not_paused(scope, name))
        ledger.notify()

    def unpark(self, name: str, /, *, because: str) -> list[Scope]:
        """Resume a job type or a source now that is paused after an outage, without a probe.

        Args:
            name: The job type, or the source of datasets.
            because: Why, for the audit log.

        Returns:
            What was resumed: `"job type"`, `"source"` or both.

        Raises:
            NotAllowed: It is not paused after an outage. Nothing was changed.
        """
        check_reason(because)
        stored.check_scope("job type", name)
        self._require("job type", name)
        ledger, actor = self._context.ledger, self._context.actor
        resumed: list[Scope] = []
        with ledger.connections.write.use() as session:
            if parking.unpark(session, name, because=because, actor=actor):
                resumed.append("job type")
        may_resume_sources = self._context.rights is None or self._context.rights.covers(None)
        if may_resume_sources and self._unpause_datasets(name, because, is_outage=True):
            resumed.append("source")
        if not resumed:
            known = {*self.known("job type"), *self.known("source")}
            check_known_name("job type or source", name, known, forced=OVERVIEW)
            raise NotAllowed(f"{name}: not paused after an outage; {OVERVIEW}; nothing was changed")
        ledger.notify()
        return resumed

    def known(self, scope: Scope, /) -> list[str]:
        """Return the names that can be paused, from the ledger, its workers and the app.

        Args:
            scope: The scope.

        Returns:
            The names, sorted. None for the app.
        """
        app, ledger = self._context.app, self._context.ledger
        names: set[str] = set()
        if scope == "job type":
            names.update(ledger.counts(), registered_job_types(ledger), job_type_names(app))
        elif scope == "schedule":
            names.update(schedule.kind for schedule in schedules(app))
        elif scope == "source":
            names.update(registered_sources(ledger), source_names(app))
            names.update(dataset.source for dataset in terms_of(app))
            names.update(view.source for view in PartitionQueries(ledger).sources())
            with ledger.reading() as connection:
                names.update(each.source for each in latest_by_source(connection))
        return sorted(names)

    def check_known(self, scope: Scope, name: str, /) -> None:
        """Raise NotAllowed if a name is unknown, with similar names.

        Args:
            scope: The scope.
            name: The name.
        """
        if scope != "app":
            forced = ""
            if scope != "job type" and not self._is_declared(scope):
                online = "while a worker that reads it is online, and "
                forced = (
                    f"a {scope} in code is known {online if scope == 'source' else ''}"
                    "with --ledger module:app; --force uses it all the same"
                )
            check_known_name(scope, name, self.known(scope), forced=forced)

    def _require(self, scope: Scope, name: str) -> None:
        """Check the right. Sources and the app belong to no job type."""
        self._context.require("pause", name if scope in ("job type", "schedule") else None)

    def _is_declared(self, scope: Scope) -> bool:
        """Return whether the app declares any source or schedule."""
        app = self._context.app
        if scope == "schedule":
            return bool(schedules(app))
        return bool(source_names(app)) or any(True for _ in terms_of(app))

    def _unpause_datasets(self, name: str, because: str, *, is_outage: bool) -> bool:
        """End the pause of a source that was made for its datasets alone, by hand or not."""
        is_paused = self._are_datasets_paused(name, is_outage=is_outage)
        if is_paused:
            control = ControlPlane(self._context.ledger, terms_of(self._context.app))
            control.unpause_source(name, actor=self._context.actor, because=because)
        return is_paused

    def _are_datasets_paused(self, name: str, *, is_outage: bool) -> bool:
        views = PartitionQueries(self._context.ledger).sources()
        return any(
            view.source == name and view.paused and (view.actor == POLICY) == is_outage
            for view in views
        )

    def _not_paused(self, scope: Scope, name: str) -> str:
        """Say why there is nothing to resume, and what else pauses it."""
        with self._context.ledger.reading() as connection:
            parked = overview.parked_reasons(connection) if scope == "job type" else {}
        is_source_parked = scope == "source" and self._are_datasets_paused(name, is_outage=True)
        if name in parked or is_source_parked:
            unpark = f'`redrive resume parked {name} --because "..."`'
            return (
                f"{scope} {name}: paused after an outage, not by hand; to resume it now, without "
                f"a probe: {unpark}; nothing was changed"
            )
        if scope != "app":
            listed = "`redrive pause list` lists pauses"
            check_known_name(scope, name, self.known(scope), forced=listed)
        return f"{subject_of(scope, name)}: not paused by hand; nothing was changed"


def check_known_name(noun: str, name: str, known: Iterable[str], /, *, forced: str = "") -> None:
    """Raise NotAllowed if a name is unknown, with similar names.

    Args:
        noun: What the name is of.
        name: The name.
        known: The known names.
        forced: How to use it all the same. Empty: `--force`.
    """
    names = list(known)
    if name in names:
        return
    similar = get_close_matches(name, names[:MAX_COMPARED], n=MAX_SUGGESTED)
    hint = f"did you mean {' or '.join(similar)}?" if similar else f"no {noun} has a similar name"
    way = forced or "--force uses it all the same"
    raise NotAllowed(f"{noun} {name!r}: unknown; {hint} ({way}); nothing was changed")
