"""For any script of responses, the report of a call agrees with the rows of the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive import App
from redrive.batch import ItemStatus, Report, Settings, retrying
from redrive.ops.operator import Operator
from redrive.testing import instant

IDS = [f"t{n}" for n in range(12)]


@pytest.mark.req("B-6", "B-15")
@settings(max_examples=25)
@given(answers=st.lists(st.sampled_from(("", "", "checksum", "503", "503")), max_size=120), calls=st.integers(1, 4))
def test_report_and_rows_agree(answers: list[str], calls: int) -> None:
    with App("sqlite://") as app, instant():
        items, arrived = app.items("tiles"), set[str]()

        class Sender:
            def send_pending(self) -> Report:
                said = []
                for item in sorted(items.pending([one for one in IDS if one not in arrived])):
                    why = answers.pop() if answers else ""
                    if not why:
                        arrived.add(item)
                    said.append(ItemStatus(item, "rejected" if why else "acknowledged", why))
                bad = sum(item.status == "rejected" for item in said)
                return Report("success" if not bad else "failure" if bad == len(said) else "partial", said)

        gone: set[str] = set()
        for _ in range(calls):
            report = retrying(Sender(), items=items, settings=Settings(max_per_item_attempts=3)).send_pending()
            gone |= {item.id for item in report.items if item.status == "giveup"}
            pending = {item.id for item in report.items if item.status == "pending"}
            assert not pending & (arrived | gone)
            assert arrived | gone | pending == set(IDS)
            assert not arrived & gone
            ann = Operator(app, actor="ann")
            assert {one.item for one in ann.batches.given_up()} == gone
            for one in ann.batches.find():
                assert (one.waiting, one.given_up) == (len(pending), len(gone))
