"""Answer: one step of a FaultServer's script, and Request: what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Trouble: TypeAlias = Literal["reset", "close", "hang", "half", "cut", "drip", "half-open", "garbage"]
"""What goes wrong after a request was read.

reset: the connection is torn down (RST).    close: it ends without a byte.    hang: no answer, ever.
half: half of the answer's head, then the end.    cut: half of the promised body, then the end.
drip: the body byte by byte, `pace` seconds apart.    garbage: not HTTP.
half-open: the answer, but nobody reads from this connection any more, and nobody closes it.
"""
Passing: TypeAlias = Literal["pass", "lost"]
"""Of a server with an upstream. pass: its answer.    lost: it has done the work, and its answer never arrives (RST)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A scripted response of a `FaultServer`: a status, or a fault. Immutable.

    Args:
        status: HTTP status.
        headers: Headers.
        body: Body.
        trouble: A fault, such as `"reset"`, `"hang"` or `"cut"`.
        delay: Seconds before anything is sent.
        pace: Seconds between the bytes of `"drip"`.
        passed: Ask the upstream server, and use its response.
        length: Content-Length to send. None: that of the body, and twice that for `"cut"`.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    trouble: Trouble | None = None
    delay: float = 0.0
    pace: float = 0.05
    passed: bool = False
    length: int | None = None


Step: TypeAlias = int | Trouble | Passing | Answer
"""A status, a trouble, or an Answer in full."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    at: float
    """When it had been read, on the monotonic clock."""


def answers(script: tuple[Step, ...], upstream: str | None, /) -> list[Answer]:
    """A script in full; without any step, 200 or the upstream's answer."""
    found = [_answer(step) for step in script] or [Answer(passed=upstream is not None)]
    if upstream is None and any(answer.passed for answer in found):
        raise ValueError("no server to pass requests on to; pass upstream=")
    return found


def _answer(step: Step) -> Answer:
    if isinstance(step, Answer):
        return step
    if isinstance(step, int) and not isinstance(step, bool) and 100 <= step <= 599:
        return Answer(step)
    if step == "pass":
        return Answer(passed=True)
    if step == "lost":
        return Answer(passed=True, trouble="reset")
    if isinstance(step, str) and step in get_args(Trouble):
        return Answer(trouble=step)
    words = ", ".join((*get_args(Trouble), *get_args(Passing)))
    raise ValueError(f"a step is a status from 100 to 599, an Answer, or one of {words}, not {step!r}")
