"""When failures are an outage: the figures of the rule and its limits. tests/property/test_outage.py has the rest."""

from __future__ import annotations

from itertools import accumulate

import pytest

from redrive.core.fault import KINDS, Fault
from redrive.core.outage import UNCHARGED, WINDOW, End, Parking, Recent, find_outage, is_charged, verdict_of


def failures_of(*keys: object, signature: str = "Timeout", group: str | None = None, at: float = 0.0) -> list[End]:
    return [End(key, "evidence", signature, group, at, (1,)) for key in keys]


def successes_of(*keys: object, group: str | None = None, at: float = 0.0) -> list[End]:
    return [End(key, "success", "", group, at) for key in keys]


@pytest.mark.req("L-7")
def test_ten_keys_and_a_share_of_nine_tenths_are_an_outage() -> None:
    parking = Parking()
    assert parking.outage(["Timeout"] * 9) is None
    assert parking.outage(["Timeout"] * 10) == "Timeout"
    assert parking.outage(["Timeout"] * 18 + [None, None]) == "Timeout"
    assert parking.outage(["Timeout"] * 17 + [None] * 3) is None
    assert Parking(least=2, share=0.5).outage(["Timeout", "Timeout", None, None]) == "Timeout"
    assert Parking.disabled().outage(["Timeout"] * 100) is None


@pytest.mark.req("L-7")
def test_several_signatures_are_an_outage_only_if_nothing_succeeds() -> None:
    parking = Parking()
    assert parking.outage(["Timeout"] * 12 + ["Refused"] * 8) == "Timeout"
    assert parking.outage([f"no answer from host{number}" for number in range(10)]) is not None
    assert parking.outage(["Timeout"] * 10 + ["Refused"] * 9 + [None]) is None


@pytest.mark.req("L-7")
@pytest.mark.parametrize("kind", KINDS)
def test_only_transient_faults_are_evidence(kind: str) -> None:
    fault = Fault(kind)  # type: ignore[arg-type]
    assert verdict_of(fault) == ("charged" if kind in ("permanent", "unknown") else "evidence")
    assert verdict_of(fault, systemic=True) == "evidence"


@pytest.mark.req("L-7")
def test_a_key_that_fails_repeatedly_counts_once() -> None:
    recent = Recent(Parking())
    assert [recent.add(End(1, "evidence", "Timeout", at=at)) for at in range(50)] == [None] * 50


@pytest.mark.req("L-7")
def test_outcomes_older_than_the_window_do_not_count() -> None:
    ends = failures_of(*range(9))
    assert find_outage([*ends, *failures_of(9, at=WINDOW + 1)], Parking()) is None
    assert find_outage([*ends, *failures_of(9, at=WINDOW)], Parking()) is not None


@pytest.mark.req("L-7")
def test_retries_of_poison_do_not_displace_the_successes_since_their_first_failure() -> None:
    """500 messages succeeded after the first failures. Then 20 poison messages are retried together."""
    recent = Recent(Parking())
    assert [recent.add(end) for end in failures_of(*range(9))] == [None] * 9
    recent.add_successes(successes_of(*range(1000, 1500), at=1.0))
    assert [recent.add(end) for end in failures_of(*range(9, 18), at=2.0)] == [None] * 9
    recent.add_successes(successes_of(*range(2000, 2500), at=3.0))
    for round_ in range(1, 5):
        assert [recent.add(end) for end in failures_of(*range(18), at=5.0 * round_)] == [None] * 18


@pytest.mark.req("L-7")
def test_an_outage_after_many_successes_is_recognised() -> None:
    recent = Recent(Parking())
    recent.add_successes(successes_of(*range(1000, 1500)))
    outages = [recent.add(end) for end in failures_of(*range(20), at=1.0)]
    assert outages[-1] is not None
    assert outages[-1].keys == list(range(20))


@pytest.mark.req("L-7")
def test_all_attempts_of_a_run_of_failures_are_refunded() -> None:
    """One job a minute: the first has failed four times when the tenth fails."""
    recent = Recent(Parking())
    for mark, at in enumerate((0.0, 5.0, 35.0, 155.0), 1):
        recent.add(End("first", "evidence", "Timeout", None, at, (mark,)))
    outages = [recent.add(end) for number in range(1, 10) for end in failures_of(number, at=60.0 * number)]
    assert outages[:-1] == [None] * 8
    assert outages[-1] is not None
    assert {end.key: end.attempts for end in outages[-1].ends}["first"] == (1, 2, 3, 4)


@pytest.mark.req("L-7")
def test_one_customer_is_not_an_outage_unless_it_is_the_only_one() -> None:
    parking = Parking()
    mine = failures_of(*range(20), group="ann")
    assert find_outage(mine, parking) is not None
    assert find_outage(mine, parking, groups=["bob"]) is None
    assert find_outage([*successes_of("b", group="bob"), *mine], parking) is None
    assert find_outage([*mine, *failures_of("b", group="bob")], parking) is not None
    assert find_outage([*mine, *failures_of("x")], parking, groups=["bob"]) is not None, "of an unknown customer"


@pytest.mark.req("L-7")
def test_one_failure_of_another_customer_beside_its_success_is_not_an_outage() -> None:
    ends = [*failures_of(*range(18), group="ann"), *failures_of("b1", group="bob"), *successes_of("b2", group="bob")]
    assert find_outage(ends, Parking()) is None


@pytest.mark.req("L-7")
def test_a_customer_beyond_the_short_memory_still_counts_as_seen() -> None:
    recent = Recent(Parking())
    recent.add_successes(successes_of("b", group="bob"))
    recent.add_successes(successes_of(*range(1000, 1100), group="ann", at=1.0))
    assert not any(recent.add(end) for end in failures_of(*range(100), group="ann", at=2.0))
    late = [recent.add(end) for end in failures_of(*range(200, 210), group="ann", at=WINDOW + 1)]
    assert late[-1] is not None, "600 s later, bob is not recent"


@pytest.mark.req("L-7")
def test_poison_beside_an_outage_is_charged() -> None:
    parking = Parking()
    ends = [End("poison", "charged", "ValueError"), *failures_of(*range(10))]
    outage = find_outage(ends, parking)
    assert outage is not None
    assert "poison" not in outage.keys
    assert is_charged("charged", parking, outage=True, uncharged=0)
    assert not is_charged("evidence", parking, outage=True, uncharged=0)
    assert is_charged("evidence", parking, outage=False, uncharged=0)
    assert is_charged("evidence", parking, outage=True, uncharged=parking.uncharged)


def test_intervals_between_probes_grow() -> None:
    parking = Parking(first=5, longest=60)
    assert [parking.wait(probes) for probes in (0, 1, 2, 3, 4, 1000)] == [5, 10, 20, 40, 60, 60]


@pytest.mark.req("L-7")
def test_the_bound_covers_the_probes_of_an_hour_and_four_attempts_before_it() -> None:
    parking = Parking()
    probes = [at for at in accumulate(parking.wait(number) for number in range(100)) if at <= 3600]
    assert len(probes) == 16
    assert parking.uncharged == UNCHARGED == len(probes) + 4


@pytest.mark.parametrize(
    ("given_", "error"),
    [
        ({"least": 0}, ValueError),
        ({"share": 0}, ValueError),
        ({"share": 1.1}, ValueError),
        ({"first": 0}, ValueError),
        ({"uncharged": -1}, ValueError),
        ({"least": "10"}, TypeError),
        ({"uncharged": 1.5}, TypeError),
    ],
)
def test_invalid_figures_are_rejected(given_: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Parking(**given_)  # type: ignore[arg-type]
