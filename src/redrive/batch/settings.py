"""Settings of a retrying sender from configuration, and the checked terms that a call reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

from ..backoff import Backoff, powers
from ..core.budget import UNLIMITED
from ..core.policy import RetryPolicy, environment_values, parse_number, table_values
from ..core.seconds import number, positive, whole_number
from ..engine.retry import Retry, RetryLike

OUTAGE_ITEMS = 10
OUTAGE_SHARE = 0.9
"""The evidence of an outage: at least this number of items, and this share of a pass, are rejected
for a transient reason."""
MINIMUMS = {
    "max_in_call_retries": 0,
    "max_per_item_attempts": 1,
    "max_uncharged_passes": 0,
    "max_split_sends": 0,
}


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
        set_field = object.__setattr__  # the class is frozen
        for name, minimum in MINIMUMS.items():
            set_field(self, name, whole_number(name, getattr(self, name), least=minimum))
        set_field(self, "backoff_base", number("backoff_base", self.backoff_base))
        set_field(self, "backoff_cap", positive("backoff_cap", self.backoff_cap))
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
        values = table_values("batch settings", section, _FIELDS, ALIASES, _translate)
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks the types

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
        names = (*_FIELDS, *ALIASES)
        values = environment_values(prefix, "TILES", names, environ, _parse)
        return cls.from_mapping(values) if values else None


def _translate(name: str, value: object) -> object:
    """Return the value of the field that a key sets, where an alias means something else."""
    if name == "max_attempts":
        return whole_number(name, value) - 1
    if name == "disable_retry_decorator":
        if not isinstance(value, bool):
            raise TypeError(f"disable_retry_decorator is true or false, not {value!r}")
        return not value
    return value


def _parse(variable: str, text: str, name: str) -> object:
    field = ALIASES.get(name, name)
    if field == "enabled":
        word = text.strip().lower()
        if word not in TRUE_WORDS | FALSE_WORDS:
            raise ValueError(f"{variable} must be true or false, not {text!r}")
        return word in TRUE_WORDS
    return parse_number(variable, text, is_count=field.startswith("max_"))


TRUE_WORDS = frozenset(("1", "true", "yes", "on"))
FALSE_WORDS = frozenset(("0", "false", "no", "off"))
_FIELDS = tuple(field.name for field in fields(Settings))
ALIASES = {
    "max_attempts": "max_in_call_retries",
    "item_attempts": "max_per_item_attempts",
    "max_per_tile_attempts": "max_per_item_attempts",
    "backoff_base_s": "backoff_base",
    "backoff_cap_s": "backoff_cap",
    "backoff_max": "backoff_cap",
    "disable_retry_decorator": "enabled",
}
DEFAULT_SETTINGS = Settings()


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """The limits and waits that a call reads. Immutable: anything may share one."""

    retries: int
    backoff: Backoff
    backoff_cap: float
    item_attempts: int
    max_uncharged: int
    max_split_sends: int = 0
    timeout: float | None = None
    backoff_base: float | None = None
    """The base of the waits, for the log. None: the backoff has no base."""

    @classmethod
    def combine(
        cls, settings: Settings, retry: RetryLike | None, item_attempts: int, /
    ) -> BatchTerms:
        """Return the terms of a sender. `retry` replaces the retries and waits of the settings."""
        if retry is None:
            return cls(
                retries=settings.max_in_call_retries,
                backoff=powers(settings.backoff_base, cap=settings.backoff_cap),
                backoff_cap=settings.backoff_cap,
                item_attempts=item_attempts,
                max_uncharged=settings.max_uncharged_passes,
                max_split_sends=settings.max_split_sends,
                backoff_base=settings.backoff_base,
            )
        policy, backoff = _policy_of(retry)
        return cls(
            retries=policy.max_attempts - 1,
            backoff=backoff,
            backoff_cap=policy.backoff_max,
            item_attempts=item_attempts,
            max_uncharged=settings.max_uncharged_passes,
            max_split_sends=settings.max_split_sends,
            timeout=policy.timeout,
            backoff_base=policy.backoff_base if backoff == policy.wait else None,
        )


def _policy_of(retry: RetryLike) -> tuple[RetryPolicy, Backoff]:
    if isinstance(retry, RetryPolicy):
        return retry, retry.wait
    if not isinstance(retry, Retry):
        raise TypeError(
            "retry= must be a RetryPolicy or a result of `retry(...)`, not "
            f"{type(retry).__name__}: {retry!r}"
        )
    settings = retry.settings
    unsupported = {
        "reject": settings.reject,
        "breaker": settings.breaker,
        "key": settings.key,
        "spill": settings.spill,
        "budget": None if settings.budget is UNLIMITED else settings.budget,
    }
    names = [name for name, value in unsupported.items() if value is not None]
    if names:
        raise TypeError(
            f"a batch goes by reports, not by errors: retry= cannot have {', '.join(names)} here"
        )
    return settings.policy, settings.backoff
