"""Cron: a schedule of five fields in a time zone."""

from __future__ import annotations

from datetime import datetime, timezone
from types import ModuleType
from zoneinfo import ZoneInfo

UTC = timezone.utc


class Cron:
    """A schedule with the rules of Debian's cron. Immutable: anything may share it.

    If the clock is put forward over a fixed time, the schedule runs right after the gap. If a fixed
    time occurs twice, it runs at the first one. Schedules with `*` in the hour or the minute follow
    elapsed time: every 15 minutes stays every 15 minutes.

    Args:
        line: Five fields: minute, hour, day, month, weekday.
        zone: Name of the time zone.

    Raises:
        ValueError: The fields or the time zone are not valid, or no date matches.
    """

    __slots__ = ("line", "zone")

    def __init__(self, line: str, zone: str = "UTC", /) -> None:
        if not isinstance(line, str):
            raise TypeError(f"cron= must be text of five fields, such as '0 2 * * *', not {line!r}")
        if len(line.split()) != 5:
            raise ValueError(
                f"cron={line!r}: needs five fields (minute, hour, day, month, weekday), "
                "such as '0 2 * * *'"
            )
        self.line = " ".join(line.split())
        self.zone = _time_zone(zone)
        self.after(datetime.now(UTC))  # Reject invalid fields here, not when a worker starts.

    def after(self, time: datetime, /) -> datetime:
        """Return the first time of the schedule after this time, in UTC."""
        cronsim = _import_cronsim()
        try:
            for local in cronsim.CronSim(self.line, time.astimezone(self.zone)):
                candidate: datetime = local.astimezone(UTC)
                if candidate > time:  # An hour that occurs twice may have begun earlier.
                    return candidate
        except cronsim.CronSimError as error:
            problem = str(error)
            message = f"cron={self.line!r}: {problem[0].lower()}{problem[1:]}"
            raise ValueError(message) from None
        raise ValueError(f"cron={self.line!r}: never matches a date; check day and month")

    def __str__(self) -> str:
        return f"{self.line} {self.zone.key}"


def _time_zone(name: object) -> ZoneInfo:
    if not isinstance(name, str):
        raise TypeError(
            f"timezone= must be the name of a time zone, such as 'Europe/Prague', not {name!r}"
        )
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # Unknown; not a valid name; a folder of zones.
        raise ValueError(
            f"timezone={name!r} is not a time zone that this machine knows; use a name such as "
            "'Europe/Prague' (`pip install tzdata` installs all of them)"
        ) from None


def _import_cronsim() -> ModuleType:
    try:
        import cronsim  # noqa: PLC0415  # an extra, only for schedules
    except ModuleNotFoundError:
        message = 'cron= needs the extra "ledger": pip install "redrive[ledger]"'
        raise ModuleNotFoundError(message) from None
    return cronsim
