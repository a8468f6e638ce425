"""Begin, settle, renew and sweep of keys, on both databases."""

from __future__ import annotations

import threading

import pytest

from redrive import App, Key
from redrive.errors import LeaseLost, NotAllowed
from redrive.idempotency.keys import Keys
from redrive.idempotency.record import BeginResult, KeyId
from tests.conformance.idempotency.world import AT, KEY, age_keys

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
    assert keys.begin(AT, None, keep=60).outcome == "completed"  # no fingerprint, no conflict


@pytest.mark.req("I-2")
def test_the_stored_record(keys: Keys) -> None:
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
def test_keys_are_unique_for_domain_and_user(keys: Keys) -> None:
    nobody = KeyId.of(Key("billing", "", "o-1", "charge"))
    assert nobody.user_id == ""
    for ident in (AT, nobody, KeyId.of(Key("billing", "bob", "o-1", "charge")), KeyId.of(Key("shop", "ann", "o-1", "charge"))):
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
    """The lease of a holder has expired, and another holder has taken over and may have settled."""
    zombie = keys.begin(AT, HASH, keep=60)
    age_keys(app, lease=3600)
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
def test_a_slow_holder_may_settle_if_the_key_was_not_taken_over(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    age_keys(app, lease=3600)
    keys.complete(AT, begun.fence, b"1", keep=60)
    assert keys.begin(AT, keep=60).response == b"1"


@pytest.mark.req("I-3")
def test_a_crashed_holder_is_taken_over_once(app: App, keys: Keys) -> None:
    for _round in range(5):
        keys.begin(AT, HASH, keep=60)
        age_keys(app, lease=3600)
        found: list[BeginResult] = []
        start = threading.Barrier(8)

        def taker(start: threading.Barrier = start, found: list[BeginResult] = found) -> None:
            start.wait()
            found.append(keys.begin(AT, HASH, keep=60))

        threads = [threading.Thread(target=taker) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(begun.outcome for begun in found) == ["busy"] * 7 + ["fresh"]
        keys.free(AT, next(begun.fence for begun in found if begun.outcome == "fresh"))


def test_a_renewed_key_is_not_taken_over(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    age_keys(app, lease=3600)
    assert keys.renew([(AT, begun.fence)]) == []
    assert keys.begin(AT, keep=60).outcome == "busy"
    assert keys.renew([(AT, begun.fence - 1)]) == [(AT, begun.fence - 1)]


@pytest.mark.req("I-2")
def test_lease_and_retention_are_independent(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, HASH, keep=60)
    age_keys(app, kept=3600, begun=3600)  # expired, and still held
    assert keys.begin(AT, HASH, keep=60).outcome == "busy"
    assert keys.sweep() == 0
    keys.complete(AT, begun.fence - 3600 * 1_000_000, b"1", keep=60)
    age_keys(app, lease=3600)  # the lease of a settled key has no meaning
    assert keys.begin(AT, HASH, keep=60).outcome == "completed"
    age_keys(app, kept=3600)
    renewed = keys.begin(AT, OTHER, keep=60)
    assert (renewed.outcome, renewed.taken_over) == ("fresh", False)


def test_a_failure_expires(app: App, keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    keys.fail(AT, begun.fence, {"type": "X"}, keep=60)
    assert keys.begin(AT, keep=60).outcome == "failed"
    age_keys(app, kept=3600)
    assert keys.begin(AT, keep=60).outcome == "fresh"


def test_sweep_removes_expired_keys(app: App, keys: Keys) -> None:
    done, crashed = KeyId.of("d:u:done:o:v1"), KeyId.of("d:u:crashed:o:v1")
    keys.complete(done, keys.begin(done, keep=60).fence, None, keep=60)
    keys.begin(crashed, keep=60)
    assert keys.sweep() == 0
    age_keys(app, lease=3600, kept=3600)
    fresh = KeyId.of("d:u:fresh:o:v1")
    keys.begin(fresh, keep=60)
    assert keys.sweep(limit=1) == 1
    assert keys.sweep() == 1
    assert [record.key for record in keys.page()] == [fresh.key]


@pytest.mark.parametrize("took", [0, 2_999])
def test_retention_starts_when_the_key_is_settled(app: App, keys: Keys, took: int) -> None:
    """A long call does not shorten the retention. After a short one, `expires_at` is unchanged."""
    begun = keys.begin(AT, keep=3_000)
    age_keys(app, kept=took, begun=took)
    before = keys.find(KEY)
    keys.complete(AT, begun.fence - took * 1_000_000, b"1", keep=3_000)
    found = keys.find(KEY)
    assert before is not None
    assert found is not None
    assert (found.expires_at == before.expires_at) == (took == 0)
    assert (found.expires_at - found.updated_at).total_seconds() == pytest.approx(3_000, abs=60)


def test_operators_list_and_release_keys(app: App, keys: Keys) -> None:
    for number in range(5):
        ident = KeyId.of(Key("billing", "ann" if number % 2 else "bob", f"o-{number}", "charge"))
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
    age_keys(app, lease=3600)
    assert [record.key for record in keys.page(abandoned=True)] == [held]
    assert keys.release(held, actor="ann", because="it hangs").abandoned
    assert keys.find(held) is None
    with pytest.raises(NotAllowed, match="not found"):
        keys.release(held, actor="ann", because="again")
    with pytest.raises(ValueError, match="because"):
        keys.release("billing:bob:o-2:charge:v1", actor="ann", because=" ")
    entry = app.ledger.audit()[-1]
    assert (entry.actor, entry.action, entry.because, entry.what["key"]) == ("ann", "key.release", "it hangs", held)


def test_a_forced_release_fences_the_holder(keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    keys.release(KEY, actor="ann", because="must go", force=True)
    with pytest.raises(LeaseLost):
        keys.complete(AT, begun.fence, b"1", keep=60)


def test_a_response_or_key_that_is_too_large_is_rejected(keys: Keys) -> None:
    begun = keys.begin(AT, keep=60)
    with pytest.raises(ValueError, match="response has 2000000 bytes"):
        keys.complete(AT, begun.fence, b"0" * 2_000_000, keep=60)
    with pytest.raises(ValueError, match="key must not be longer than 1000 bytes"):
        KeyId.of(Key("d", "u", "x" * 1000, "o"))


def test_the_fence_grows_if_the_clock_is_set_back(app: App, keys: Keys) -> None:
    first = keys.begin(AT, keep=60)
    with app.ledger.begin() as tx:
        from sqlalchemy import text

        tx.execute(text(f"UPDATE redrive_key SET fence = {first.fence + 10**12}"))
    age_keys(app, lease=3600)
    assert keys.begin(AT, keep=60).fence > first.fence + 10**12
