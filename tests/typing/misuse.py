"""Type-checked, never run: every line with an ignore must be an error, and every `assert_type` must hold."""

from collections.abc import Iterator
from datetime import timedelta
from typing import assert_type, overload

from redrive import (
    Attempt,
    Breaker,
    Budget,
    Fault,
    Key,
    Outcome,
    RetryPolicy,
    acall,
    attempts,
    backoff,
    call,
    classify,
    correlate,
    current,
    deadline,
    outcome,
    retry,
)
from redrive.errors import Again, Stop


# --- retry keeps the type: functions, coroutines, methods, overloads, generators
@retry
def bare(x: int) -> str:
    return str(x)


@retry(RetryPolicy(max_attempts=2), on=(OSError, classify))
async def later(x: int) -> bytes:
    return bytes(x)


@retry
def items(x: int) -> Iterator[int]:
    yield x


class Service:
    @retry(attempt_timeout=timedelta(seconds=1))
    def method(self, x: int) -> str:
        return str(x)

    @classmethod
    @retry
    def of_class(cls, x: int) -> str:
        return str(x)

    @overload
    def either(self, x: int) -> int: ...
    @overload
    def either(self, x: str) -> str: ...
    @retry
    def either(self, x: int | str) -> int | str:
        return x


assert_type(bare(1), str)
assert_type(items(1), Iterator[int])
assert_type(Service().method(1), str)
assert_type(Service.of_class(1), str)
assert_type(Service().either("a"), str)
bare("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Service().method("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# --- arguments of retry
retry(max_attempts=5, timeout=30)
retry(None)
retry(RetryPolicy(), max_attempts=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
retry(attempts=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
retry(on="ConnectionError")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
retry().using(max_attempts=5).using(atempts=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
retry(backoff=backoff.steps(300, timedelta(minutes=30)), budget="crm", breaker="crm", nested="allow", fields={"team": "crm"})
retry(nested="never")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
crm = retry(RetryPolicy(), budget=Budget(capacity=100), breaker=Breaker(window=timedelta(minutes=1)))
assert_type(crm.call(bare, 1), str)
crm.call(bare, "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(call(bare, 1), str)


async def colours() -> None:
    assert_type(await crm.acall(later, 1), bytes)
    assert_type(await acall(later, 1), bytes)
    await crm.acall(bare, 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async for attempt in crm.attempts():
        with attempt:
            assert_type(attempt.remaining, float | None)
    async with deadline(8), correlate(user_id="u"):
        pass


def block() -> str:
    for attempt in attempts(RetryPolicy()):
        with attempt:
            return "a value cannot be returned from a block without a last line:"
    raise AssertionError


# --- rules
def rule(error: Exception) -> bool | None:
    return None


def meaning(error: Exception) -> Fault:
    return Fault("throttled", after=3)


def bad_rule(error: int) -> bool:
    return True


retry(on=rule)
retry(on=OSError)
retry(on=(OSError, rule, meaning, classify))
retry(on=bad_rule)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# --- other functions
assert_type(current(), Attempt)
assert_type(current().key, Key | None)
assert_type(outcome(ValueError()), Outcome | None)
with deadline(timedelta(seconds=8)), correlate(request_id="r", team="crm"):
    pass
Key("billing", "u", "o-1", "charge")
Key(domain="billing", user="u", entity="o-1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
RetryPolicy().max_attempts = 5  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
raise Again(after=timedelta(minutes=1)) from Stop()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
