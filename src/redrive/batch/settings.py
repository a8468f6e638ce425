"""Settings: the two budgets of a batch, as configuration has them; Terms: what the loops read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from ..backoff import Backoff, powers
from ..core.budget import UNLIMITED
from ..core.policy import RetryPolicy
from ..core.seconds import number, positive, whole
from ..engine.retry import Retry, RetryLike

OUTAGE_ITEMS = 10
OUTAGE_SHARE = 0.9
"""An outage: at least this number of items, and this share of a pass, are rejected for a transient reason."""


LEAST = {"max_in_call_retries": 0, "max_per_item_attempts": 1, "max_uncharged_passes": 0, "max_split_sends": 0}


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a retrying sender: retries within a call, and attempts of an item over all calls.

    Immutable: threads, event loops and forked children may share one.

    Args:
        max_in_call_retries: Number of passes after the first one of a call.
        max_per_item_attempts: Rejections after which an item is given up, counted over all calls
            and processes.
        backoff_base: The wait before retry n (from 1) is `min(backoff_base ** n, backoff_cap)`
            seconds.
        backoff_cap: Maximum wait in seconds. `next_retry_at` is this far away.
        max_uncharged_passes: Maximum number of rejections of an item in outages that do not count
            as attempts. The default lasts for an outage of an hour.
        enabled: If False, the sender is used unchanged.
        max_split_sends: With `split=`, maximum number of groups that one call sends to find the
            items that are rejected.

    Raises:
        ValueError: A number is out of range.
        TypeError: A value has the wrong type.
    """

    max_in_call_retries: int = 3
    max_per_item_attempts: int = 5
    backoff_base: float = 2.0
    backoff_cap: float = 60.0
    max_uncharged_passes: int = 200
    enabled: bool = True
    max_split_sends: int = 100

    def __post_init__(self) -> None:
        keep = object.__setattr__
        for name, least in LEAST.items():
            keep(self, name, whole(name, getattr(self, name), least=least))
        keep(self, "backoff_base", number("backoff_base", self.backoff_base))
        keep(self, "backoff_cap", positive("backoff_cap", self.backoff_cap))
        if not isinstance(self.enabled, bool):
            raise TypeError(f"enabled is True or False, not {self.enabled!r}")

    @classmethod
    def from_mapping(cls, section: Mapping[str, object] | None, /) -> Self | None:
        """Create settings from parsed TOML or JSON.

        These other names are accepted too: `max_per_tile_attempts`, `backoff_base_s`,
        `backoff_cap_s`, `disable_retry_decorator`, `max_attempts` and `backoff_max`.

        Args:
            section: The table. None if the section is missing.

        Returns:
            The settings, or None if `section` is None.

        Raises:
            TypeError: A key is unknown. The message names it and the known keys.
        """
        if section is None:
            return None
        if not isinstance(section, Mapping):
            raise TypeError(f"batch settings are a table of {_known()}, not {type(section).__name__}: {section!r}")
        given: dict[str, object] = {}
        for name, value in section.items():
            field = ALIASES.get(name, name)
            if field not in _NAMES:
                raise TypeError(f"unknown key {name!r} in batch settings; known: {_known()}")
            if field in given:
                raise TypeError(f"{name!r} and another key both set {field!r} in batch settings")
            given[field] = _read(name, value)
        return cls(**given)  # type: ignore[arg-type]  # __post_init__ checks what a mapping cannot promise

    @classmethod
    def from_env(cls, prefix: str, /, environ: Mapping[str, str] | None = None) -> Self | None:
        """Create settings from environment variables such as `<PREFIX>_MAX_IN_CALL_RETRIES`.

        Args:
            prefix: Prefix of the variables, such as `"TILES"`.
            environ: The variables. Default: `os.environ`.

        Returns:
            The settings, or None if no variable is set.

        Raises:
            ValueError: A value is not valid. The message names the variable.
        """
        if not isinstance(prefix, str) or not prefix.strip("_"):
            raise TypeError(f"the prefix of the variables must be text, such as 'TILES': {prefix!r}")
        if environ is None:
            from os import environ as environment  # noqa: PLC0415  # read only when asked

            environ = environment
        given: dict[str, object] = {}
        for name in (*_NAMES, *ALIASES):
            variable = f"{prefix.rstrip('_')}_{name}".upper()
            if variable in environ:
                given[name] = _parsed(variable, environ[variable], ALIASES.get(name, name))
        return cls.from_mapping(given) if given else None


def _read(name: str, value: object) -> object:
    if name == "max_attempts":
        return whole(name, value) - 1
    if name == "disable_retry_decorator":
        if not isinstance(value, bool):
            raise TypeError(f"disable_retry_decorator is true or false, not {value!r}")
        return not value
    return value


def _parsed(variable: str, text: str, field: str) -> object:
    said = text.strip().lower()
    if field == "enabled":
        if said not in YES | NO:
            raise ValueError(f"{variable} must be true or false, not {text!r}")
        return said in YES
    try:
        return int(text) if field.startswith("max_") else float(text)
    except ValueError:
        kind = "a whole number" if field.startswith("max_") else "a number of seconds"
        raise ValueError(f"{variable} must be {kind}, not {text!r}") from None


def _known() -> str:
    return ", ".join(_NAMES)


YES = frozenset(("1", "true", "yes", "on"))
NO = frozenset(("0", "false", "no", "off"))
_NAMES = tuple(field.name for field in fields(Settings))
ALIASES = {
    "max_attempts": "max_in_call_retries",
    "item_attempts": "max_per_item_attempts",
    "max_per_tile_attempts": "max_per_item_attempts",
    "backoff_base_s": "backoff_base",
    "backoff_cap_s": "backoff_cap",
    "backoff_max": "backoff_cap",
    "disable_retry_decorator": "enabled",
}
DEFAULT = Settings()


@dataclass(frozen=True, slots=True)
class Terms:
    """What the loops read. Immutable: anything may share one."""

    retries: int
    backoff: Backoff
    cap: float
    item_attempts: int
    uncharged: int
    split_sends: int = 0
    timeout: float | None = None
    base: float | None = None
    """The base of the waits; None: they have none."""

    @classmethod
    def of(cls, settings: Settings, retry: RetryLike | None, item_attempts: int, /) -> Terms:
        """Checked. retry: in place of the settings' retries and waits."""
        if retry is None:
            waits = powers(settings.backoff_base, cap=settings.backoff_cap)
            return cls(
                retries=settings.max_in_call_retries,
                backoff=waits,
                cap=settings.backoff_cap,
                item_attempts=item_attempts,
                uncharged=settings.max_uncharged_passes,
                split_sends=settings.max_split_sends,
                base=settings.backoff_base,
            )
        policy, backoff = _policy(retry)
        return cls(
            retries=policy.max_attempts - 1,
            backoff=backoff,
            cap=policy.backoff_max,
            item_attempts=item_attempts,
            uncharged=settings.max_uncharged_passes,
            split_sends=settings.max_split_sends,
            timeout=policy.timeout,
            base=policy.backoff_base if backoff == policy.wait else None,
        )


def _policy(retry: RetryLike) -> tuple[RetryPolicy, Backoff]:
    if isinstance(retry, RetryPolicy):
        return retry, retry.wait
    if not isinstance(retry, Retry):
        raise TypeError(f"retry= must be a RetryPolicy or a result of `retry(...)`, not {type(retry).__name__}: {retry!r}")
    told = retry.settings
    unused = {
        "reject": told.reject,
        "breaker": told.breaker,
        "key": told.key,
        "spill": told.spill,
        "budget": None if told.budget is UNLIMITED else told.budget,
    }
    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise TypeError(f"a batch goes by reports, not by errors: retry= cannot have {', '.join(given)} here")
    return told.policy, told.backoff
