"""Other retry libraries, each with 3 attempts, no wait, and retries of `ValueError`."""

import logging
from collections.abc import Callable
from typing import Any

from benchmarks.candidate import Form, Function, Library

SECONDS = 5.0
"""Time limit of an attempt. It is never reached."""


def tenacity() -> Library:
    import tenacity as t

    options: dict[str, Any] = {
        "stop": t.stop_after_attempt(3),
        "wait": t.wait_none(),
        "retry": t.retry_if_exception_type(ValueError),
        "reraise": True,
    }

    def block(fn: Function) -> Function:
        def run() -> Any:
            result: Any = None
            for attempt in t.Retrying(**options):
                with attempt:
                    result = fn()
            return result

        return run

    def async_block(fn: Function) -> Function:
        async def run() -> Any:
            result: Any = None
            async for attempt in t.AsyncRetrying(**options):
                with attempt:
                    result = await fn()
            return result

        return run

    def decorate(fn: Function) -> Function:
        return t.retry(**options)(fn)

    return Library(
        "tenacity",
        "tenacity",
        sync=(Form("@retry", decorate), Form("for/with block", block)),
        async_=(Form("@retry", decorate), Form("for/with block", async_block)),
    )


def stamina() -> Library:
    import stamina as s
    from stamina import instrumentation

    instrumentation.set_on_retry_hooks([])  # its default hook logs a warning for each retry
    options: dict[str, Any] = {
        "on": ValueError,
        "attempts": 3,
        "timeout": 45.0,
        "wait_initial": 0,
        "wait_max": 0,
        "wait_jitter": 0,
    }

    def block(fn: Function) -> Function:
        def run() -> Any:
            result: Any = None
            for attempt in s.retry_context(**options):
                with attempt:
                    result = fn()
            return result

        return run

    def async_block(fn: Function) -> Function:
        async def run() -> Any:
            result: Any = None
            async for attempt in s.retry_context(**options):
                with attempt:
                    result = await fn()
            return result

        return run

    def decorate(fn: Function) -> Function:
        return s.retry(**options)(fn)

    return Library(
        "stamina",
        "stamina",
        sync=(Form("@retry", decorate), Form("retry_context block", block)),
        async_=(Form("@retry", decorate), Form("retry_context block", async_block)),
    )


def backoff() -> Library:
    import backoff as b

    def decorate(fn: Function) -> Function:
        return b.on_exception(b.constant, ValueError, max_tries=3, interval=0, jitter=None)(fn)

    form = Form("@on_exception", decorate)
    return Library("backoff", "backoff", sync=(form,), async_=(form,))


def hyx() -> Library:
    from hyx.retry import retry
    from hyx.retry.exceptions import MaxAttemptsExceeded

    options: dict[str, Any] = {"attempts": 2, "backoff": 0.0}  # `attempts` counts retries, so 2 makes three calls

    def decorate(fn: Function) -> Function:
        return retry(on=ValueError, **options)(fn)

    def nest(fn: Function) -> Function:
        return retry(on=(ValueError, MaxAttemptsExceeded), **options)(fn)

    return Library("hyx", "hyx.retry", async_=(Form("@retry", decorate, nest=nest),))


def pyresilience() -> Library:
    import pyresilience as p

    def decorate(fn: Function) -> Function:
        return p.resilient(retry=p.RetryConfig(max_attempts=3, delay=0, jitter=False, retry_on=(ValueError,)))(fn)

    def limited(fn: Function) -> Function:
        retry = p.RetryConfig(max_attempts=3, delay=0, jitter=False, retry_on=(ValueError,))
        return p.resilient(retry=retry, timeout=p.TimeoutConfig(seconds=SECONDS))(fn)

    return Library(
        "pyresilience",
        "pyresilience",
        sync=(Form("@resilient", decorate), Form("@resilient + timeout (thread)", limited, limit=True)),
        async_=(Form("@resilient", decorate), Form("@resilient + timeout", limited, limit=True)),
    )


def resilient_circuit() -> Library:
    from resilient_circuit import RetryWithBackoffPolicy

    def decorate(fn: Function) -> Function:
        return RetryWithBackoffPolicy(max_retries=2, should_handle=lambda e: isinstance(e, ValueError))(fn)

    def nest(fn: Function) -> Function:
        return RetryWithBackoffPolicy(max_retries=2, should_handle=lambda e: True)(fn)

    form = Form("RetryWithBackoffPolicy", decorate, nest=nest)
    return Library("resilient-circuit", "resilient_circuit", sync=(form,), async_=(form,))


def redress() -> Library:
    import redress as r

    options: dict[str, Any] = {
        "classifier": lambda error: r.ErrorClass.TRANSIENT,
        "strategy": lambda context: 0.0,
        "max_attempts": 3,
    }

    def decorate(fn: Function) -> Function:
        return r.retry(**options)(fn)

    def limited(fn: Function) -> Function:
        return r.retry(attempt_timeout_s=SECONDS, **options)(fn)

    return Library(
        "redress",
        "redress",
        sync=(Form("@retry", decorate), Form("@retry + attempt timeout (thread)", limited, limit=True)),
        async_=(Form("@retry", decorate), Form("@retry + attempt timeout", limited, limit=True)),
    )


def opnieuw() -> Library:
    import opnieuw as o

    options: dict[str, Any] = {"max_calls_total": 3, "retry_window_after_first_call_in_seconds": 1}

    def decorate(fn: Function) -> Function:
        return o.retry(retry_on_exceptions=ValueError, **options)(fn)

    form = Form("@retry", decorate)
    return Library("opnieuw", "opnieuw", sync=(form,), async_=(form,))


def google_api_core() -> Library:
    from google.api_core import retry, retry_async

    options: dict[str, Any] = {
        "predicate": retry.if_exception_type(ValueError),
        "initial": 0,
        "maximum": 0,
        "multiplier": 1,
        "timeout": 45,
    }
    return Library(
        "google-api-core",
        "google.api_core.retry",
        sync=(Form("Retry", retry.Retry(**options), bounded=False),),
        async_=(Form("AsyncRetry", retry_async.AsyncRetry(**options), bounded=False),),
    )


def aioresilience() -> Library:
    from aioresilience import RetryConfig, RetryPolicy

    def through(fn: Function) -> Function:
        config = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0.0, retry_on_exceptions=(ValueError,))
        policy = RetryPolicy(config=config)

        async def run() -> Any:
            return await policy.execute(fn)

        return run

    return Library("aioresilience", "aioresilience", async_=(Form("RetryPolicy.execute", through),))


def nopanic() -> Library:
    import nopanic as n

    options: dict[str, Any] = {"attempts": 3, "on": ValueError, "backoff": 0.0}

    def decorate(fn: Function) -> Function:
        return n.retry(**options)(fn)

    def budgeted(fn: Function) -> Function:
        return n.retry(**options, budget=n.RetryBudget(ratio=1.0, min_retries_per_sec=1e9))(fn)

    def limited(fn: Function) -> Function:
        return n.retry(**options)(n.timeout(SECONDS)(fn))

    return Library(
        "nopanic",
        "nopanic",
        sync=(
            Form("@retry", decorate),
            Form("@retry + budget", budgeted),
            Form("@retry + timeout (thread)", limited, limit=True),
        ),
        async_=(
            Form("@retry", decorate),
            Form("@retry + budget", budgeted),
            Form("@retry + timeout", limited, limit=True),
        ),
    )


def backon() -> Library:
    import backon as b

    options: dict[str, Any] = {"max_tries": 3, "interval": 0, "jitter": None}

    def decorate(fn: Function) -> Function:
        return b.on_exception(b.constant, ValueError, **options)(fn)

    def limited(fn: Function) -> Function:
        return b.on_exception(b.constant, ValueError, **options, attempt_timeout=SECONDS)(fn)

    return Library(
        "backon",
        "backon",
        sync=(Form("@on_exception", decorate),),
        async_=(Form("@on_exception", decorate), Form("@on_exception + attempt timeout", limited, limit=True)),
    )


PEERS: dict[str, Callable[[], Library]] = {
    "nopanic": nopanic,
    "resilient-circuit": resilient_circuit,
    "stamina": stamina,
    "tenacity": tenacity,
    "redress": redress,
    "pyresilience": pyresilience,
    "google-api-core": google_api_core,
    "opnieuw": opnieuw,
    "hyx": hyx,
    "backoff": backoff,
    "backon": backon,
    "aioresilience": aioresilience,
}


def disable_logging() -> None:
    """Disable logging, so that only the overhead of retries is compared."""
    logging.disable(logging.CRITICAL)
