"""Places: any key has a folder that every disk takes, and no two keys share one."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions import Partition
from redrive.partitions.raw.layout import LONGEST, decoded, encoded, folder_of, manifest_of, runs_of
from redrive.storage.path import path_problem

TEXT = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable() and bool(text.strip()))


def key(customer: str = "acme", source: str = "crm", query: str = "orders") -> Partition:
    return Partition(source, customer, query, date(2026, 1, 31))


def test_a_plain_key_is_readable() -> None:
    assert (
        manifest_of(key("acme-7"), "20261116T045107-7f3a")
        == "crm/customer_id=acme-7/query_name=orders/logical_date=2026-01-31/run_id=20261116T045107-7f3a/manifest.json"
    )


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("a/b", "a%2fb"),
        ("a,b", "a%2cb"),
        ("Acme", "%41cme"),
        ("é", "%c3%a9"),
        ("orders.v2", "orders.v2"),
        (".", "%2e"),
        ("..", "%2e%2e"),
        (".redrive-x", "%2eredrive-x"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("con.", "con%2e"),
    ],
)
def test_what_disks_do_not_take_is_written_otherwise(part: str, name: str) -> None:
    assert encoded(part) == name
    assert decoded(name) == part


@given(TEXT, TEXT)
def test_two_parts_never_share_a_name_whatever_the_case(one: str, other: str) -> None:
    if one != other:
        assert encoded(one).casefold() != encoded(other).casefold()
    assert len(encoded(one)) <= LONGEST
    assert decoded(encoded(one)) in (one, None)


@given(TEXT, TEXT, TEXT)
def test_every_key_has_a_path_on_every_backend(source: str, customer: str, query: str) -> None:
    assert path_problem(manifest_of(key(customer, source, query), "r-1")) is None


def test_a_long_part_is_cut_and_told_apart() -> None:
    one, other = "ä" * 140 + "1", "ä" * 140 + "2"
    assert encoded(one) != encoded(other)
    assert len(encoded(one)) <= LONGEST
    assert decoded(encoded(one)) is None
    assert path_problem(f"{runs_of(key(one, one, other))}/run_id=x/y") is None


def test_a_run_that_is_not_ours_is_encoded_too() -> None:
    assert folder_of(key(), "../x").endswith("/run_id=%2e.%2fx")
