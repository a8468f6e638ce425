"""Redrive, with the settings of the other libraries."""

from typing import Any

from benchmarks.candidate import Form, Function, Library

GUARD = "nested guard + shared budget"
DEADLINE = "… + attempt timeout, published to inner layers"
ENFORCED = "… + attempt timeout, enforced"
TOTAL_TIMEOUT = "… + time limit for all attempts"
PARTIAL_BUDGET = "… + budget below full"
BLOCK = "for/with block"
BLOCK_WITH_OPTIONS = "for/with block with its own options"


def load() -> Library:
    from redrive import Budget, RetryPolicy, attempts, retry

    policy = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0)
    bounded = RetryPolicy(max_attempts=3, backoff_base=0, jitter=0, timeout=45)
    budget = Budget(capacity=1e9)  # shared by all, and large enough for all failures
    drained = Budget(capacity=1e9, cost=1e5, refill=1e-3)
    shared: dict[str, Any] = {"on": ValueError, "budget": budget}

    def with_guard(fn: Function) -> Function:
        return retry(policy, **shared, attempt_timeout=None)(fn)

    def with_attempt_timeout(fn: Function) -> Function:
        return retry(policy, **shared, attempt_timeout=10)(fn)

    def with_total_timeout(fn: Function) -> Function:
        return retry(bounded, **shared, attempt_timeout=None)(fn)

    def with_partial_budget(fn: Function) -> Function:
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

    def block_with_options(fn: Function) -> Function:
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
        with_partial_budget(fail)()
    except ValueError:
        pass  # the budget is below full now, and successes refill almost nothing
    return Library(
        "redrive",
        "redrive",
        sync=(
            Form(GUARD, with_guard),
            Form(DEADLINE, with_attempt_timeout, limit=True),
            Form(TOTAL_TIMEOUT, with_total_timeout, limit=True),
            Form(PARTIAL_BUDGET, with_partial_budget),
            Form(BLOCK, block),
            Form(BLOCK_WITH_OPTIONS, block_with_options),
        ),
        async_=(
            Form(GUARD, with_guard),
            Form(ENFORCED, with_attempt_timeout, limit=True),
            Form(TOTAL_TIMEOUT, with_total_timeout, limit=True),
            Form(PARTIAL_BUDGET, with_partial_budget),
            Form(BLOCK, async_block),
        ),
    )
