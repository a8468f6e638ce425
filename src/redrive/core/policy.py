"""RetryPolicy: number of attempts, backoff and total time."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Self

from .seconds import number, whole_number

ALIASES = {
    "max_in_call_retries": "max_attempts",
    "backoff_base_s": "backoff_base",
    "backoff_cap_s": "backoff_max",
}
"""Other names for `from_mapping`. `max_in_call_retries` does not count the first attempt."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to retry: number of attempts, backoff and total time.

    Immutable: threads, event loops and forked children may share one.

    Args:
        max_attempts: Maximum number of attempts, including the first one.
        backoff_base: Seconds to wait after the first failed attempt. The wait doubles with each
            further one.
        backoff_max: Maximum number of seconds that doubling reaches.
        jitter: Maximum number of seconds that are added to each wait at random.
        timeout: Seconds for all attempts and waits together. It does not interrupt an attempt.
            None: no limit.

    Raises:
        ValueError: A number is out of range.
        TypeError: A value is not a number.
    """

    max_attempts: int = 3
    backoff_base: float = 1.0
    backoff_max: float = 60.0
    jitter: float = 1.0
    timeout: float | None = None

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "max_attempts", whole_number("max_attempts", self.max_attempts))
        for name in ("backoff_base", "backoff_max", "jitter"):
            set_field(self, name, number(name, getattr(self, name)))
        if self.timeout is not None:
            set_field(self, "timeout", _timeout("timeout", self.timeout))

    @classmethod
    def disabled(cls) -> Self:
        """Return a policy of one attempt, without retries.

        Returns:
            `RetryPolicy(max_attempts=1)`.
        """
        return cls(max_attempts=1)

    @classmethod
    def service_call(cls) -> Self:
        """Return the default policy of `retry()`.

        Returns:
            3 attempts, backoff 0.25 s to 5 s, jitter 0.25 s.
        """
        return cls(max_attempts=3, backoff_base=0.25, backoff_max=5.0, jitter=0.25)

    @classmethod
    def from_mapping(cls, section: Mapping[str, object] | None, /) -> Self | None:
        """Create a policy from parsed TOML or JSON.

        Args:
            section: The table with the fields. None if the section is missing.

        Returns:
            The policy, or None if `section` is None.

        Raises:
            TypeError: A key is unknown. The message names it and the known keys.
            ValueError: A number is out of range.
        """
        if section is None:
            return None
        values = table_values("a retry policy", section, _NAMES, ALIASES, _translate)
        return cls(**values)  # type: ignore[arg-type]  # __post_init__ checks the types

    @classmethod
    def from_env(cls, prefix: str, /, environ: Mapping[str, str] | None = None) -> Self | None:
        """Create a policy from environment variables such as `<PREFIX>_MAX_ATTEMPTS`.

        The other variables end in `_BACKOFF_BASE`, `_BACKOFF_MAX`, `_JITTER` and `_TIMEOUT`. An
        empty `_TIMEOUT`, or `none`, means no limit.

        Args:
            prefix: Prefix of the variables, such as `"CRM"`.
            environ: The variables. Default: `os.environ`.

        Returns:
            The policy, or None if no variable is set.

        Raises:
            ValueError: A value is not valid. The message names the variable.
        """
        names = (*_NAMES, *ALIASES)
        values = environment_values(prefix, "CRM_RETRY", names, environ, _parse)
        return cls.from_mapping(values) if values else None

    def wait(self, attempt: int, draw: float, /) -> float:
        """Return the wait after a failed attempt.

        Args:
            attempt: Number of the failed attempt, from 1.
            draw: A random number from 0 up to, not including, 1.

        Returns:
            Seconds.
        """
        wait = exponential_wait(self.backoff_base, attempt) if attempt > 1 else self.backoff_base
        return (wait if wait < self.backoff_max else self.backoff_max) + self.jitter * draw


def exponential_wait(base: float, attempt: int, /) -> float:
    """Return `base * 2**(attempt - 1)`. Infinite if it is too large for a float."""
    try:
        return math.ldexp(base, attempt - 1)
    except OverflowError:
        return math.inf


def _timeout(name: str, value: object) -> float:
    limit = number(name, value)
    if limit == 0:
        raise ValueError(f"{name} must be above 0, or None for no limit: {value!r}")
    return limit


def _translate(name: str, value: object) -> object:
    """Return the value of the field that a key sets, where an alias means something else."""
    return whole_number(name, value, least=0) + 1 if name == "max_in_call_retries" else value


def _parse(variable: str, text: str, name: str) -> float | None:
    if name == "timeout" and text.strip().lower() in ("", "none"):
        return None
    is_count = name.startswith("max_")
    value = parse_number(variable, text, is_count=is_count)
    if is_count:
        return whole_number(variable, value, least=0 if name in ALIASES else 1)
    return _timeout(variable, value) if name == "timeout" else number(variable, value)


_NAMES = tuple(field.name for field in fields(RetryPolicy))

SERVICE = RetryPolicy.service_call()
"""The default of `retry()`."""


# --- Settings from configuration


def table_values(
    what: str,
    section: Mapping[str, object],
    names: Collection[str],
    aliases: Mapping[str, str],
    translate: Callable[[str, object], object],
    /,
) -> dict[str, object]:
    """Return the values of fields that a table of TOML or JSON sets.

    Args:
        what: The settings, for errors.
        section: The table.
        names: Names of the fields.
        aliases: Other keys, each with the field that it sets.
        translate: Returns the value of the field, from a key and its value.

    Raises:
        TypeError: It is not a table, or has an unknown key, or two keys for one field.
    """
    known = ", ".join(names)
    if not isinstance(section, Mapping):
        kind = type(section).__name__
        raise TypeError(f"{what} must be a table of {known}, not {kind}: {section!r}")
    values: dict[str, object] = {}
    for key, value in section.items():
        field = aliases.get(key, key)
        if field not in names:
            raise TypeError(f"unknown key {key!r} in {what}; use one of: {known}")
        if field in values:
            message = f"{key!r} and another key both set {field!r} in {what}; remove one"
            raise TypeError(message)
        values[field] = translate(key, value)
    return values


def environment_values(
    prefix: str,
    example: str,
    names: Iterable[str],
    environ: Mapping[str, str] | None,
    parse: Callable[[str, str, str], object],
    /,
) -> dict[str, object]:
    """Return the values of environment variables with a prefix, by name.

    Args:
        prefix: Prefix of the variables.
        example: An example of a prefix, for errors.
        names: Names of settings. The variable is the prefix and the name, in upper case.
        environ: The variables. None: `os.environ`.
        parse: Returns the value, from the variable, its text and the name.
    """
    if not isinstance(prefix, str) or not prefix.strip("_"):
        message = f"the prefix of the variables must be text, such as {example!r}: {prefix!r}"
        raise TypeError(message)
    if environ is None:
        from os import environ as environment  # noqa: PLC0415  # `core` is pure otherwise

        environ = environment
    variables = {name: f"{prefix.rstrip('_')}_{name}".upper() for name in names}
    return {
        name: parse(variable, environ[variable], name)
        for name, variable in variables.items()
        if variable in environ
    }


def parse_number(variable: str, text: str, /, *, is_count: bool, unit: str = "seconds") -> float:
    """Return the number in an environment variable. `unit` names what it measures, in errors."""
    try:
        return int(text) if is_count else float(text)
    except ValueError:
        kind = "a whole number" if is_count else f"a number of {unit}"
        raise ValueError(f"{variable} must be {kind}, not {text!r}") from None
