"""Layout: any key has a folder on every disk, and no two keys share one."""

from __future__ import annotations

from datetime import date
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.partitions import Partition
from redrive.partitions.raw.manifest import MAX_PART_CHARS, encode_part, manifest_path, run_folder, runs_folder
from redrive.storage.path import path_problem

TEXT = st.text(min_size=1, max_size=60).filter(lambda text: text.isprintable() and bool(text.strip()))


def decode_part(name: str) -> str | None:
    """Return the part of a folder name. None: the part was too long to be kept in it."""
    return None if "~" in name else unquote(name, errors="surrogatepass")


def key(customer: str = "acme", source: str = "crm", query: str = "orders") -> Partition:
    return Partition(source, customer, query, date(2026, 1, 31))


def test_a_simple_key_is_readable() -> None:
    assert (
        manifest_path(key("acme-7"), "20261116T045107-7f3a")
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
def test_characters_that_disks_reject_are_escaped(part: str, name: str) -> None:
    assert encode_part(part) == name
    assert decode_part(name) == part


@given(TEXT, TEXT)
def test_parts_that_differ_in_case_have_different_names(one: str, other: str) -> None:
    if one != other:
        assert encode_part(one).casefold() != encode_part(other).casefold()
    assert len(encode_part(one)) <= MAX_PART_CHARS
    assert decode_part(encode_part(one)) in (one, None)


@given(TEXT, TEXT, TEXT)
def test_every_key_has_a_path_on_every_backend(source: str, customer: str, query: str) -> None:
    assert path_problem(manifest_path(key(customer, source, query), "r-1")) is None


def test_a_long_part_is_cut_and_stays_unique() -> None:
    one, other = "ä" * 140 + "1", "ä" * 140 + "2"
    assert encode_part(one) != encode_part(other)
    assert len(encode_part(one)) <= MAX_PART_CHARS
    assert decode_part(encode_part(one)) is None
    assert path_problem(f"{runs_folder(key(one, one, other))}/run_id=x/y") is None


def test_a_foreign_run_id_is_encoded() -> None:
    assert run_folder(key(), "../x").endswith("/run_id=%2e.%2fx")
