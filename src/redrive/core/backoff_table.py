"""Backoffs in TOML: `backoff = [1, 10]` and `backoff = { full_jitter = 0.5, cap = 30 }`."""

from __future__ import annotations

from .. import backoff as backoffs

FORMS = {
    "steps": ("jitter",),
    "fixed": ("jitter",),
    "powers": ("cap", "jitter"),
    "doubling": ("cap", "jitter"),
    "full_jitter": ("cap",),
}
"""The backoffs of `redrive.backoff`, with the keys that each takes beside its first value."""


def backoff_from_table(value: object, /) -> backoffs.Backoff:
    """Return the backoff that a list of seconds or a table stands for.

    Raises:
        ValueError: The value has another form, a number is out of range, or `cap` is missing.
        TypeError: A value is not a number.
    """
    if isinstance(value, list):
        value = {"steps": value}
    form = [key for key in value if key in FORMS] if isinstance(value, dict) else []
    if not isinstance(value, dict) or len(form) != 1 or set(value) - {*form, *FORMS[form[0]]}:
        raise ValueError(
            "backoff must be a list of seconds, or one of { fixed = 5 }, "
            "{ steps = [1, 10], jitter = 0.1 }, "
            f"{{ powers = 2, cap = 60 }}, {{ doubling = 0.1, cap = 10 }}, "
            f"{{ full_jitter = 0.5, cap = 30 }}, not {value!r}"
        )
    first = value[form[0]]
    rest = {key: value[key] for key in value if key != form[0]}
    if "cap" in FORMS[form[0]] and "cap" not in rest:
        raise ValueError(f"backoff {form[0]} needs a cap, in seconds")
    arguments = first if form[0] == "steps" and isinstance(first, list) else [first]
    backoff: backoffs.Backoff = getattr(backoffs, form[0])(*arguments, **rest)
    return backoff
