"""Cron: a line of five fields in a time zone, and when it fires next."""

from __future__ import annotations

from datetime import datetime, timezone
from types import ModuleType
from zoneinfo import ZoneInfo

UTC = timezone.utc


class Cron:
    """When something recurs, as Debian's cron has it. Immutable: anything may share it.

    A fixed hour that a change of the clocks skips fires right after the gap; one that comes twice fires the first time only.
    Lines with `*` in the hour or the minute go by elapsed time: every 15 minutes stays every 15 minutes.
    """

    __slots__ = ("line", "zone")

    def __init__(self, line: str, zone: str = "UTC", /) -> None:
        """ValueError where the line or the zone makes no sense."""
        if not isinstance(line, str):
            raise TypeError(f"cron= must be text of five fields, such as '0 2 * * *', not {line!r}")
        if len(line.split()) != 5:
            raise ValueError(f"cron={line!r}: needs five fields (minute, hour, day, month, weekday), such as '0 2 * * *'")
        self.line = " ".join(line.split())
        self.zone = _zone(zone)
        self.after(datetime.now(UTC))  # a line that is wrong, or that never fires, is said here

    def after(self, moment: datetime, /) -> datetime:
        """The first firing after this moment, in UTC."""
        cronsim = _library()
        try:
            for local in cronsim.CronSim(self.line, moment.astimezone(self.zone)):
                found: datetime = local.astimezone(UTC)
                if found > moment:  # on the day that has an hour twice, the first of two may be past already
                    return found
        except cronsim.CronSimError as wrong:
            raise ValueError(f"cron={self.line!r}: {str(wrong)[0].lower()}{str(wrong)[1:]}") from None
        raise ValueError(f"cron={self.line!r}: never matches a date; check day and month")

    def __str__(self) -> str:
        return f"{self.line} {self.zone.key}"


def _zone(name: object) -> ZoneInfo:
    if not isinstance(name, str):
        raise TypeError(f"timezone= must be the name of a time zone, such as 'Europe/Prague', not {name!r}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not known; no name at all; a folder of zones
        raise ValueError(
            f"timezone={name!r} is not a time zone that this machine knows; use a name such as 'Europe/Prague' "
            f"(`pip install tzdata` installs all of them)"
        ) from None


def _library() -> ModuleType:
    try:
        import cronsim  # noqa: PLC0415  # an extra: only those who have schedules need it
    except ModuleNotFoundError:
        raise ModuleNotFoundError('cron= needs the extra "ledger": pip install "redrive[ledger]"') from None
    return cronsim
