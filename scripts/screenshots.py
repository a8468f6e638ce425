"""Take the screenshots of the console for README and docs, with `make screenshots`.

It needs Chromium on PATH or in REDRIVE_TEST_CHROMIUM, and fonts. On Debian, install `chromium fonts-dejavu fonts-liberation`.
With a folder as its argument, it takes every page at 390 and 1280 pixels, in dark and light, for a review.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from redrive.console.view import NAVIGATION  # noqa: E402
from redrive.demo.live import write_history  # noqa: E402
from tests.conformance.partitions.world import DAY, World  # noqa: E402
from tests.console.sample_shop import add_problems, shop  # noqa: E402
from tests.console.serving import let_in, serve_console  # noqa: E402
from tests.servers.chromium import options  # noqa: E402

DAYS = 45
RANGE = f"since={DAY}&until={DAY + timedelta(days=DAYS - 1)}"
SELECTION = f"of_source=crm&of_query=orders&from={DAY + timedelta(days=18)}&to={DAY + timedelta(days=24)}"
PICTURES = {
    "overview": "/",
    "activity": "/activity",
    "failure": "/dead/2",
    "plan": "/dead/plan?act=replay&kind=crm.sync",
    "sweep": "/sweeps/2",
    "dead": "/dead?by=cause",
    "partitions": f"/partitions?{RANGE}&{SELECTION}",
}
ALL_PAGES = {
    **{page.path.strip("/") or "overview": page.path for _, pages in NAVIGATION for page in pages}, **PICTURES,
    "letter": "/dead/18", "job": "/jobs/2", "retrying": "/jobs/21", "event": "/events/show?id=ev-0",
    "key": "/keys/show?key=billing:ann:o-1:charge:v1", "verified": "/audit?verify=1", "missing": "/jobs/999",
    "group": "/failures?kind=crm.sync&signature=TimeoutError:+read+timed+out+after+%23+s",
    "partition-plan": f"/partitions/plan?act=retry&source=crm&query=orders&{RANGE}",
    "backfill": "/sweeps/3", "reopen": "/batches/reopen?batch=tiles&reason=corrupt", "invalid": "/dead/plan?act=burn&ids=1",
    "nothing": "/dead?kind=nothing", "filtered": "/dead?kind=crm.sync&error=Timeout", "stopped": "/workers?all=1",
    "customers": f"/partitions/customers?source=crm&query=orders&{RANGE}",
    "day": f"/partitions/day?source=crm&query=orders&status=failed&{RANGE}",
    "drawer": f"/partitions/day?source=crm&query=orders&status=failed&key=crm/c7/orders/{DAY + timedelta(days=12)}",
}  # fmt: skip


def main() -> int:
    review_folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), shop("sqlite:///redrive.db") as app:
        add_problems(app, "the total is -3")
        dead_letters = [each.id for each in app.ledger.dead_letters(status="pending", error="CrmRejected", limit=9)]
        sweep = app.ledger.sweeps.begin("replay", dead_letters, actor="ann", because="INC-42: the addresses were added", canary=1)
        app.ledger.sweeps.step(sweep.id)
        items = app.items("tiles")
        items.increment_many([f"t-{number}" for number in range(5)])
        items.give_up_many({f"t-{number}": "corrupt blob" for number in range(3)})
        add_dataset(World(app.ledger))
        write_history(app.ledger)
        with serve_console(app) as url, sync_playwright() as playwright:
            launch_options: dict[str, Any] = options()
            context = playwright.chromium.launch(**launch_options).new_context()
            let_in(context, url)
            if review_folder is None:
                for name, path in PICTURES.items():
                    app.ledger.maintenance.heartbeat("web-1:41")  # keep the worker online
                    take_screenshot(context, url + path, ROOT / "docs" / "pictures" / f"{name}.png", 1280, "light")
            else:
                for name, path in ALL_PAGES.items():
                    app.ledger.maintenance.heartbeat("web-1:41")
                    for width, scheme in ((390, "light"), (1280, "dark"), (390, "dark"), (1280, "light")):
                        take_screenshot(context, url + path, review_folder / f"{name}-{width}-{scheme}.png", width, scheme)
            context.close()
    return 0


def add_dataset(world: World) -> None:
    """Make a dataset of twelve customers, with some failed days."""
    world.backfill(12, DAYS)
    leases = world.claim(10_000)
    outage = [lease for lease in leases if (lease.partition.logical_date - DAY).days in (20, 21, 22)]
    wrong = [lease for lease in leases if lease.partition.customer_id == "c7" and lease not in outage]
    late = [lease for lease in leases if (lease.partition.logical_date - DAY).days > DAYS - 4]
    world.reject(*wrong[10:30])
    world.reject(*outage[::2], reason="schema")
    rest = [lease for lease in leases if lease not in wrong[10:30] and lease not in outage[::2] and lease not in late]
    world.accept(*rest)


def take_screenshot(context: BrowserContext, url: str, to: Path, width: int, scheme: Any) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.goto(url)
    page.screenshot(path=to, full_page=True)
    page.close()
    print(to)


if __name__ == "__main__":
    sys.exit(main())
