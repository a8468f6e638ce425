"""Redrive's own rows, set like the peers': 3 attempts, no wait, `ValueError` tried again."""

from typing import Any

from benchmarks.candidate import Form, Function, Library

GUARD = "nested guard + shared budget"
DEADLINE = "… + attempt time-out, published to inner layers"
ENFORCED = "… + attempt time-out, enforced"
WHOLE = "… + a time limit for all attempts"
DRAINED = "… + budget below full"
BLOCK = "for/with block"
ANEW = "for/with block, options given there"


def load() -> Library:
    from redrive import Budget, RetryPolicy, attempts, retry

    policy = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
    bounded = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0, timeout=45)
    budget = Budget(capacity=1e9)  # shared by all, and never spent by the failures measured here
    drained = Budget(capacity=1e9, cost=1e5, refill=1e-3)
    shared: dict[str, Any] = {"on": ValueError, "budget": budget}

    def guarded(fn: Function) -> Function:
        return retry(policy, **shared, attempt_timeout=None)(fn)

    def limited(fn: Function) -> Function:
        return retry(policy, **shared, attempt_timeout=10)(fn)

    def whole(fn: Function) -> Function:
        return retry(bounded, **shared, attempt_timeout=None)(fn)

    def below(fn: Function) -> Function:
        return retry(policy, on=ValueError, budget=drained, attempt_timeout=None)(fn)

    def block(fn: Function) -> Function:
        ours = retry(policy, **shared, attempt_timeout=None)

        def run() -> Any:
            result: Any = None
            for attempt in ours.attempts():
                with attempt:
                    result = fn()
            return result

        return run

    def async_block(fn: Function) -> Function:
        ours = retry(policy, **shared, attempt_timeout=None)

        async def run() -> Any:
            result: Any = None
            async for attempt in ours.attempts():
                with attempt:
                    result = await fn()
            return result

        return run

    def anew(fn: Function) -> Function:
        def run() -> Any:
            result: Any = None
            for attempt in attempts(policy, **shared, attempt_timeout=None):
                with attempt:
                    result = fn()
            return result

        return run

    def fail() -> None:
        raise ValueError

    try:
        below(fail)()
    except ValueError:
        pass  # two retries' worth of tokens are gone now; successes give back next to nothing
    return Library(
        "redrive",
        "redrive",
        sync=(
            Form(GUARD, guarded),
            Form(DEADLINE, limited, limit=True),
            Form(WHOLE, whole, limit=True),
            Form(DRAINED, below),
            Form(BLOCK, block),
            Form(ANEW, anew),
        ),
        async_=(
            Form(GUARD, guarded),
            Form(ENFORCED, limited, limit=True),
            Form(WHOLE, whole, limit=True),
            Form(DRAINED, below),
            Form(BLOCK, async_block),
        ),
    )
