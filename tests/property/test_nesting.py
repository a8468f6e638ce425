"""For any stack: the innermost layer that retries decides how often the leaf is called, and nothing multiplies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import RetryPolicy, outcome, retry
from redrive.testing import instant

pytestmark = pytest.mark.req("C-7")

kinds = st.sampled_from(["plain", "async", "block", "from", "thread"])
layers = st.lists(
    st.tuples(kinds, st.integers(1, 5), st.sampled_from([None, 10.0]), st.booleans()),
    min_size=1,
    max_size=5,
)


@given(stack=layers)
def test_the_innermost_retrying_layer_decides_the_number_of_calls(stack: list[tuple[str, int, float | None, bool]]) -> None:
    """stack: layers from the inside out, as (kind, attempts, timeout, whether it allows multiplication)."""
    calls = 0

    def leaf() -> None:
        nonlocal calls
        calls += 1
        raise OSError("down")

    call: Callable[[], Any] = leaf
    for kind, attempts, limit, allow in stack:
        call = _around(call, kind, attempts, limit, allow)
    with instant(), pytest.raises(OSError, match="down") as caught:
        call()
    expected, spent = 1, False
    for _, attempts, _, allow in stack:
        if not spent or allow:
            expected *= attempts
        spent = spent or attempts > 1
    assert calls == expected
    assert _is_marked(caught.value) == spent


def _is_marked(error: BaseException | None) -> bool:
    return error is not None and (outcome(error) is not None or _is_marked(error.__cause__))


def _around(call: Callable[[], Any], kind: str, attempts: int, limit: float | None, allow: bool) -> Callable[[], Any]:
    policy = RetryPolicy(max_attempts=attempts, backoff_base=0, jitter=0)
    layer = retry(policy, on=OSError, attempt_timeout=limit, nested="allow" if allow else "final")
    if kind == "plain":
        return layer(lambda: call())  # noqa: PLW0108  # a separate function for each layer
    if kind == "async":

        async def later() -> Any:
            return await asyncio.to_thread(call)

        return lambda: asyncio.run(layer.acall(later))
    if kind == "block":

        def block() -> Any:
            for attempt in layer.attempts():
                with attempt:
                    return call()
            return None

        return block
    if kind == "thread":

        async def in_task() -> Any:
            return await asyncio.create_task(asyncio.to_thread(call))

        return lambda: asyncio.run(layer.acall(in_task))

    def raised_from() -> Any:
        try:
            return call()
        except OSError as error:
            raise OSError("down") from error

    return layer(raised_from)


@given(
    layers=st.lists(st.integers(1, 4), min_size=2, max_size=10),
    order=st.randoms(use_true_random=False),
)
def test_unrelated_tasks_that_share_one_error_have_their_own_attempts(layers: list[int], order: Any) -> None:
    shared = OSError("shared")
    counts = [0] * len(layers)
    turns = [[order.randrange(4) for _ in range(attempts)] for attempts in layers]

    async def one(number: int) -> None:
        layer = retry(RetryPolicy(max_attempts=layers[number], backoff_base=0, jitter=0), on=OSError)

        async def body() -> None:
            for _ in range(turns[number][counts[number]]):
                await asyncio.sleep(0)
            counts[number] += 1
            raise shared

        with pytest.raises(OSError, match="shared"):
            await layer.acall(body)

    async def main() -> None:
        await asyncio.gather(*(one(number) for number in range(len(layers))))

    asyncio.run(main())
    assert counts == layers
