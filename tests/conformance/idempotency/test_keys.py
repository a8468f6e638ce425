"""The verbs of a key, on both databases."""

from __future__ import annotations

import threading

import pytest

from redrive import App, Key
from redrive.errors import LeaseLost, NotAllowed
from redrive.idempotency.keys import Keys
from redrive.idempotency.record import Begun, Ident
from tests.conformance.idempotency.world import AT, KEY, aged

HASH, OTHER = b"1" * 32, b"2" * 32


@pytest.fixture
def keys(app: App) -> Keys:
    return app.keys()


@pytest.mark.req("I-2", "I-3")
def test_a_key_from_fresh_to_completed(keys: Keys) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    assert begun.outcome == "fresh"
    assert keys.begin(AT, HASH, keep=60).outcome == "busy"
    keys.complete(AT, begun.fence, b'{"a":1}', keep=60)
    again = keys.begin(AT, HASH, keep=60)
    assert (again.outcome, again.response) == ("completed", b'{"a":1}')
    assert keys.begin(AT, OTHER, keep=60).outcome == "conflict"
    assert keys.begin(AT, None, keep=60).outcome == "completed"  # who compares nothing is refused nothing


@pytest.mark.req("I-2")
def test_what_stands_in_the_table(keys: Keys) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    held = keys.find(KEY)
    assert held is not None
    assert (held.domain, held.user_id, held.key, held.status) == ("billing", "ann", str(KEY), "processing")
    assert (held.request_hash, held.fence, held.abandoned) == (HASH, begun.fence, False)
    assert held.lease_until < held.expires_at
    assert held.holder is not None
    keys.fail(AT, begun.fence, {"type": "ValueError", "message": "no"}, keep=60)
    failed = keys.find(str(KEY))
    assert failed is not None
    assert (failed.status, failed.error, failed.response) == ("failed", {"type": "ValueError", "message": "no"}, None)
    assert failed.created_at <= failed.updated_at
    assert keys.begin(AT, HASH, keep=60).error == failed.error


@pytest.mark.req("I-2")
def test_unique_for_domain_and_user(keys: Keys) -> None:
    nobody = Ident.of(Key("billing", "", "o-1", "charge"))
    assert nobody.user_id == ""
    for ident in (AT, nobody, Ident.of(Key("billing", "bob", "o-1", "charge")), Ident.of(Key("shop", "ann", "o-1", "charge"))):
        assert keys.begin(ident, keep=60).outcome == "fresh"
        assert keys.begin(ident, keep=60).outcome == "busy"


@pytest.mark.req("I-3")
def test_a_freed_key_is_fresh_again(keys: Keys) -> None:
    first = keys.begin(AT, HASH, keep=60)
    keys.free(AT, first.fence)
    assert keys.find(KEY) is None
    second = keys.begin(AT, OTHER, keep=60)
    assert second.outcome == "fresh"
    assert second.fence > first.fence


@pytest.mark.req("I-2", "I-3")
@pytest.mark.parametrize("verb", ["complete", "fail", "free"])
def test_a_late_holder_changes_nothing(app: App, keys: Keys, verb: str) -> None:
    """A zombie: its lease ran out, another one has taken over, and maybe has finished."""
    zombie = keys.begin(AT, HASH, keep=60)
    aged(app, lease=3600)
    heir = keys.begin(AT, HASH, keep=60)
    assert (heir.outcome, heir.taken_over) == ("fresh", True)
    assert heir.fence > zombie.fence

    def late() -> None:
        if verb == "complete":
            keys.complete(AT, zombie.fence, b"0", keep=60)
        elif verb == "fail":
            keys.fail(AT, zombie.fence, {}, keep=60)
        else:
            keys.free(AT, zombie.fence)

    with pytest.raises(LeaseLost, match="billing:ann:o-1:charge:v1"):
        late()
    assert keys.begin(AT, HASH, keep=60).outcome == "busy"
    keys.complete(AT, heir.fence, b"1", keep=60)
    with pytest.raises(LeaseLost):
        late()
    assert keys.begin(AT, HASH, keep=60).response == b"1"


def test_a_second_settle_changes_nothing(keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    keys.complete(AT, begun.fence, b"1", keep=60)
    with pytest.raises(LeaseLost):
        keys.complete(AT, begun.fence, b"2", keep=60)
    assert keys.begin(AT, keep=60).response == b"1"


@pytest.mark.req("I-2")
def test_a_slow_holder_that_nobody_missed_may_still_finish(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    aged(app, lease=3600)
    keys.complete(AT, begun.fence, b"1", keep=60)
    assert keys.begin(AT, keep=60).response == b"1"


@pytest.mark.req("I-3")
def test_a_crashed_holder_is_taken_over_once(app: App, keys: Keys) -> None:
    for _round in range(5):
        keys.begin(AT, HASH, keep=60)
        aged(app, lease=3600)
        found: list[Begun] = []
        start = threading.Barrier(8)

        def taker(start: threading.Barrier = start, found: list[Begun] = found) -> None:
            start.wait()
            found.append(keys.begin(AT, HASH, keep=60))

        threads = [threading.Thread(target=taker) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(begun.outcome for begun in found) == ["busy"] * 7 + ["fresh"]
        keys.free(AT, next(begun.fence for begun in found if begun.outcome == "fresh"))


def test_a_key_renewed_in_the_last_moment_is_not_taken_over(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    aged(app, lease=3600)
    assert keys.renew([(AT, begun.fence)]) == []
    assert keys.begin(AT, keep=60).outcome == "busy"
    assert keys.renew([(AT, begun.fence - 1)]) == [(AT, begun.fence - 1)]


@pytest.mark.req("I-2")
def test_lease_and_retention_are_apart(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    aged(app, kept=3600, begun=3600)  # kept long enough, but somebody is still at it
    assert keys.begin(AT, HASH, keep=60).outcome == "busy"
    assert keys.sweep() == 0
    keys.complete(AT, begun.fence - 3600 * 1_000_000, b"1", keep=60)
    aged(app, lease=3600)  # the lease of a holder that has finished means nothing
    assert keys.begin(AT, HASH, keep=60).outcome == "completed"
    aged(app, kept=3600)
    renewed = keys.begin(AT, OTHER, keep=60)
    assert (renewed.outcome, renewed.taken_over) == ("fresh", False)


def test_a_failure_is_forgotten_in_time(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    keys.fail(AT, begun.fence, {"type": "X"}, keep=60)
    assert keys.begin(AT, keep=60).outcome == "failed"
    aged(app, kept=3600)
    assert keys.begin(AT, keep=60).outcome == "fresh"


def test_the_sweeper_removes_what_is_over(app: App, keys: Keys) -> None:
    done, crashed = Ident.of("d:u:done:o:v1"), Ident.of("d:u:crashed:o:v1")
    keys.complete(done, keys.begin(done, keep=60).fence, None, keep=60)
    keys.begin(crashed, keep=60)
    assert keys.sweep() == 0
    aged(app, lease=3600, kept=3600)
    fresh = Ident.of("d:u:fresh:o:v1")
    keys.begin(fresh, keep=60)
    assert keys.sweep(limit=1) == 1
    assert keys.sweep() == 1
    assert [record.key for record in keys.page()] == [fresh.key]


@pytest.mark.parametrize("took", [0, 2_999])
def test_an_answer_is_kept_from_its_end_on(app: App, keys: Keys, took: int) -> None:
    """A key that took long is not forgotten the sooner for it, and one that did not takes nobody's time to be moved."""
    begun = keys.begin(AT, keep=3_000)
    aged(app, kept=took, begun=took)
    before = keys.find(KEY)
    keys.complete(AT, begun.fence - took * 1_000_000, b"1", keep=3_000)
    found = keys.find(KEY)
    assert before is not None
    assert found is not None
    assert (found.expires_at == before.expires_at) == (took == 0)
    assert (found.expires_at - found.updated_at).total_seconds() == pytest.approx(3_000, abs=60)


def test_operators_see_and_release(app: App, keys: Keys) -> None:
    for number in range(5):
        ident = Ident.of(Key("billing", "ann" if number % 2 else "bob", f"o-{number}", "charge"))
        begun = keys.begin(ident, keep=60)
        if number:
            keys.complete(ident, begun.fence, b"1", keep=60)
    first = keys.page(domain="billing", limit=2)
    rest = keys.page(domain="billing", after=first[-1])
    assert [record.user_id for record in first + rest] == ["ann", "ann", "bob", "bob", "bob"]
    assert len(keys.page(user="ann")) == 2
    assert [record.key for record in keys.page(status="processing")] == ["billing:bob:o-0:charge:v1"]
    assert keys.page(abandoned=True) == []

    held = "billing:bob:o-0:charge:v1"
    with pytest.raises(NotAllowed, match="is in use by"):
        keys.release(held, actor="ann", because="it hangs")
    aged(app, lease=3600)
    assert [record.key for record in keys.page(abandoned=True)] == [held]
    assert keys.release(held, actor="ann", because="it hangs").abandoned
    assert keys.find(held) is None
    with pytest.raises(NotAllowed, match="not found"):
        keys.release(held, actor="ann", because="again")
    with pytest.raises(ValueError, match="because"):
        keys.release("billing:bob:o-2:charge:v1", actor="ann", because=" ")
    entry = app.ledger.audit()[-1]
    assert (entry.actor, entry.action, entry.because, entry.what["key"]) == ("ann", "key.release", "it hangs", held)


def test_a_forced_release_fences_the_holder_off(keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    keys.release(KEY, actor="ann", because="must go", force=True)
    with pytest.raises(LeaseLost):
        keys.complete(AT, begun.fence, b"1", keep=60)


def test_what_is_too_large_is_refused(keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    with pytest.raises(ValueError, match="response has 2000000 bytes"):
        keys.complete(AT, begun.fence, b"0" * 2_000_000, keep=60)
    with pytest.raises(ValueError, match="key must not be longer than 1000 bytes"):
        Ident.of(Key("d", "u", "x" * 1000, "o"))


def test_the_fence_grows_also_when_the_clock_goes_back(app: App, keys: Keys) -> None:
    first = keys.begin(AT, keep=60)
    with app.ledger.begin() as tx:
        from sqlalchemy import text

        tx.execute(text(f"UPDATE redrive_key SET fence = {first.fence + 10**12}"))
    aged(app, lease=3600)
    assert keys.begin(AT, keep=60).fence > first.fence + 10**12
