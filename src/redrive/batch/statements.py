"""Statements over the items of a ledger: one each, whatever the number of items, in the order of their ids."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Text, bindparam, case, cast, func, literal, select, true, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import ARRAY

from ..ledger.moment import Moment
from ..ledger.tables import item

HERE = item.c.batch == bindparam("of_batch")
# An item that had arrived, and comes again: a new beginning.
OPEN_AGAIN = case((item.c.status == "acknowledged", "open"), else_=item.c.status)


class Statements:
    """Those of one database. Immutable: anything may share it.

    In the order of ids: two who count the same items at the same time never wait for each other in a circle.
    """

    def __init__(self, *, on_sqlite: bool) -> None:
        self._sqlite = on_sqlite
        now: Any = bindparam("now", type_=Moment) if on_sqlite else func.now()
        listed: Any
        ids: Any
        at: Any
        why: Any
        if on_sqlite:
            listed = func.json_each(bindparam("ids")).table_valued("value").alias("listed")
            paired = func.json_each(bindparam("pairs")).table_valued("value").alias("paired")
            ids, at, why = listed.c.value, *(func.json_extract(paired.c.value, f"$[{place}]") for place in (0, 1))
        else:
            listed = func.unnest(cast(bindparam("ids"), ARRAY(Text))).table_valued("value").render_derived(name="listed")
            arrays = (cast(bindparam("pairs"), ARRAY(Text)), cast(bindparam("reasons"), ARRAY(Text)))
            paired = func.unnest(*arrays).table_valued("at", "why").render_derived(name="paired")
            ids, at, why = listed.c.value, paired.c.at, paired.c.why
        named = bindparam("of_batch", type_=Text)
        moments = {"created_at": now, "updated_at": now}
        self.increment = self._upsert(
            select(cast(named, Text), ids, literal(1), now, now).where(true()).order_by(ids),
            ["batch", "item", "attempts", *moments],
            {"attempts": item.c.attempts + 1, "status": OPEN_AGAIN, "updated_at": now},
        ).returning(item.c.item, item.c.attempts - item.c.forgiven)
        self.spare = self._upsert(
            select(cast(named, Text), ids, literal(1), now, now).where(true()).order_by(ids),
            ["batch", "item", "spared", *moments],
            {"spared": item.c.spared + 1, "status": OPEN_AGAIN, "updated_at": now},
        ).returning(item.c.item, item.c.spared)
        self.give_up = self._upsert(
            select(cast(named, Text), at, literal("giveup"), why, now, now, now).where(true()).order_by(at),
            ["batch", "item", "status", "reason", "given_up_at", *moments],
            {"status": "giveup", "reason": self._new("reason"), "given_up_at": now, "updated_at": now},
            item.c.status == "open",
        ).returning(item.c.item)
        among = item.c.item.in_(select(ids))
        self.waiting = select(item.c.item).where(HERE, item.c.status == "open").limit(bindparam("most"))
        self.gone = select(item.c.item).where(HERE, item.c.status == "giveup", among)
        # Rows that are changed are locked in order first; on SQLite there is one writer at a time.
        locked = select(item.c.item).where(HERE, among).order_by(item.c.item).with_for_update().cte("locked")
        these = among if on_sqlite else item.c.item.in_(select(locked.c.item))
        anew = {"forgiven": item.c.attempts, "spared": 0, "updated_at": now}
        arrived = {"status": "acknowledged", **anew}
        self.acknowledge = update(item).where(HERE, item.c.status == "open", these).values(arrived).returning(item.c.item)
        reopened = {"status": "open", "given_up_at": None, "reopened": item.c.reopened + 1, **anew}
        self.reopen = update(item).where(HERE, item.c.status == "giveup", these).values(reopened).returning(item.c.item)

    def _upsert(self, rows: Any, columns: list[str], changes: dict[str, Any], only: Any = None) -> Any:
        insert: Any = sqlite.insert(item) if self._sqlite else postgresql.insert(item)
        place = [item.c.batch, item.c.item]
        return insert.from_select(columns, rows).on_conflict_do_update(index_elements=place, set_=changes, where=only)

    def _new(self, name: str) -> Any:
        return (sqlite.insert(item) if self._sqlite else postgresql.insert(item)).excluded[name]

    def ids(self, given: Collection[str], /) -> dict[str, Any]:
        """Ids as one parameter."""
        listed = sorted(set(given))
        return {"ids": json.dumps(listed) if self._sqlite else listed}

    def pairs(self, given: Mapping[str, str], /) -> dict[str, Any]:
        """Ids and what is said of each, as parameters."""
        if self._sqlite:
            return {"pairs": json.dumps(sorted(given.items()))}
        return {"pairs": list(given), "reasons": list(given.values())}


SQLITE = Statements(on_sqlite=True)
POSTGRES = Statements(on_sqlite=False)
