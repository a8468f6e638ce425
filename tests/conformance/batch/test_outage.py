"""Charges in an outage and for damaged items, with a process for each run."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine, insert

from tests.conformance.batch.world import FORKS, TILES, tiles, upload

STORES = pytest.mark.parametrize("store", ["table", "ledger"])
ALL = tuple(f"t{n}" for n in range(10))


def run_each_in_a_process(times: int, *arguments: object) -> None:
    for _ in range(times):
        child = FORKS.Process(target=upload, args=arguments)
        child.start()
        child.join(60)
        assert child.exitcode == 0


@pytest.mark.req("B-15")
@STORES
def test_damaged_tiles_are_sent_five_times_over_all_processes(url: str, engine: Engine, store: str) -> None:
    with engine.begin() as tx:
        rows = [{"id": f"t{n}", "status": "pending", "attempts": 0} for n in range(10, 50)]
        tx.execute(insert(TILES), rows)
    damaged = tuple(f"t{n}" for n in range(20))
    run_each_in_a_process(4, url, store, damaged, 1, 5, "422 checksum mismatch")
    found = tiles(engine)
    assert {tile: row[2] for tile, row in found.items()} == {f"t{n}": 5 if n < 20 else 1 for n in range(50)}
    if store == "table":
        assert {tile for tile, row in found.items() if row[0] == "giveup"} == set(damaged)


@pytest.mark.req("B-15")
@STORES
def test_an_outage_costs_no_attempt_below_the_uncharged_limit(url: str, engine: Engine, store: str) -> None:
    run_each_in_a_process(2, url, store, ALL, 1, 3, "503 overloaded", 8)
    assert set(tiles(engine).values()) == {("pending", 0, 8)}  # two calls of four passes
    run_each_in_a_process(2, url, store, ALL, 1, 3, "503 overloaded", 8)
    assert {row[2] for row in tiles(engine).values()} == {8 + 3}
