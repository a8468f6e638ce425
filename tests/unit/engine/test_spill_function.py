"""The spill function: valid values, its argument, and the caller's error if it fails."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive import correlate, journal, outcome, retry
from redrive.core.context import IDS
from redrive.engine.spill import Spilled
from tests.unit.engine.spilled import Kept, afailing, both, failing

pytestmark = pytest.mark.usefixtures("clock")


def test_if_spilling_fails_the_caller_gets_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    def full(_spilled: Spilled) -> str:
        raise OSError("disk full, password=s3cret")

    heard = journal.ring(10)
    unsubscribe = journal.subscribe(heard, inline=True)
    for _, error in both(TimeoutError("mine"), max_attempts=2, backoff_base=0, jitter=0, spill=full):
        assert str(error) == "mine"
        assert error.__notes__[-1] == "redrive: could not be enqueued as a job: OSError: disk full, password=[redacted]"
        ended = outcome(error)
        assert ended is not None
        assert ended.job_id is None
    unsubscribe()
    assert [record.kind for record in heard.records].count("spill_failed") == 2
    assert [record.levelname for record in caplog.records if "spill failed" in record.message] == ["WARNING"] * 2
    assert "s3cret" not in caplog.text


def test_the_journal_has_the_id_of_the_spilled_job() -> None:
    heard = journal.ring(20)
    unsubscribe = journal.subscribe(heard, inline=True)
    with correlate(request_id="r-1"):
        for _ in both(TimeoutError(), max_attempts=2, backoff_base=0, jitter=0, spill=Kept()):
            pass
    unsubscribe()
    told = [record.fields for record in heard.records if record.kind == "spilled"]
    assert [(fields["job_id"], fields["operation"], fields["request_id"]) for fields in told] == [
        (1, "crm", "r-1"),
        (2, "crm", "r-1"),
    ]


def test_a_spill_may_return_no_job() -> None:
    for _, error in both(TimeoutError(), max_attempts=2, backoff_base=0, jitter=0, spill=lambda _spilled: None):
        ended = outcome(error)
        assert ended is not None
        assert ended.job_id is None
        assert len(error.__notes__) == 1


def test_spilling_does_not_block_the_event_loop() -> None:
    kept = Kept()
    ids: list[Any] = []
    began, go_on = threading.Event(), threading.Event()

    def slow(spilled: Spilled) -> int:
        ids.append(dict(IDS.get()))
        began.set()
        assert go_on.wait(30), "the event loop was blocked"
        return kept(spilled)

    @retry(max_attempts=1, spill=slow)
    async def work() -> None:
        raise TimeoutError

    async def main() -> None:
        with correlate(request_id="r-1"):
            task = asyncio.create_task(work())
        assert await asyncio.to_thread(began.wait, 30)
        assert not task.done()
        go_on.set()
        with pytest.raises(TimeoutError):
            await task

    asyncio.run(main())
    assert kept.threads[0] is not threading.main_thread()
    assert ids == [{"request_id": "r-1"}]


def test_a_caller_cancelled_during_a_spill_is_cancelled() -> None:
    begun, done = threading.Event(), threading.Event()

    def slow(_spilled: Spilled) -> int:
        begun.set()
        done.wait(60)
        return 1

    async def main() -> None:
        task = asyncio.create_task(retry(max_attempts=1, spill=slow)(afailing(TimeoutError()))())
        await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        done.set()

    asyncio.run(main())


def test_the_job_id_survives_pickling_with_its_error() -> None:
    for _, error in both(TimeoutError(), max_attempts=1, spill=Kept()):
        ended = outcome(pickle.loads(pickle.dumps(error)))
        assert ended is not None
        assert ended.job_id == (outcome(error) or ended).job_id is not None


class Asked:
    """A spill that checks the function."""

    def __init__(self) -> None:
        self.functions: list[Any] = []

    def over(self, fn: Callable[..., Any], /) -> Callable[[Spilled], str]:
        if fn.__name__ == "unstorable":
            raise TypeError("it cannot be stored")
        self.functions.append(fn)
        return lambda spilled: f"{fn.__name__}-{spilled.args[0]}"

    def __call__(self, _spilled: Spilled) -> str:
        raise AssertionError


def test_a_spill_is_asked_about_its_function_at_decoration() -> None:
    asked = Asked()
    layer = retry(max_attempts=1, spill=asked)

    def unstorable() -> None: ...

    def contact(_number: int) -> None:
        raise TimeoutError

    with pytest.raises(TypeError, match="it cannot be stored"):
        layer(unstorable)
    work = layer(contact)
    assert asked.functions == [contact]
    with pytest.raises(TimeoutError) as caught:
        work(7)
    ended = outcome(caught.value)
    assert ended is not None
    assert ended.job_id == "contact-7"


async def _async(_spilled: Spilled) -> int:
    return 1


@pytest.mark.parametrize("wrong", [7, "crm.sync", _async])
def test_an_invalid_spill_is_rejected(wrong: Any) -> None:
    with pytest.raises(TypeError, match="spill= must be a sync function"):
        retry(spill=wrong)


def test_blocks_and_generators_cannot_be_spilled() -> None:
    layer = retry(spill=Kept())
    with pytest.raises(TypeError, match="spill= is for functions"):
        layer.attempts()

    def items() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="whose items a job could not return"):
        layer(items)


def test_a_spill_is_shared_by_copies_and_can_be_disabled() -> None:
    kept = Kept()
    layer = retry(max_attempts=1, spill=kept)
    with pytest.raises(TimeoutError):
        layer.using(operation="other")(failing(TimeoutError()))()
    with pytest.raises(TimeoutError):
        layer.using(spill=None)(failing(TimeoutError()))()
    assert len(kept.spilled) == 1
