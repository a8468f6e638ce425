"""A Celery program whose failed tasks are dead letters: `celery -A tests.acceptance.celery.program:celery worker`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from celery import Celery
from celery.exceptions import Reject

from redrive import App
from redrive.celery import connect


class Place(NamedTuple):
    """Where the parts of a program are. Passed to its processes in the environment."""

    ledger: str
    broker: str
    name: str
    """Prefix of all keys in the broker, and name of the queue."""
    folder: str
    """Notes of the tasks, and files that change their behaviour."""

    def as_environment(self) -> dict[str, str]:
        return {f"PROGRAM_{name.upper()}": value for name, value in self._asdict().items()}

    @classmethod
    def of_environment(cls) -> Place:
        return cls(*(os.environ[f"PROGRAM_{name.upper()}"] for name in cls._fields))


class Secretive(Exception):
    """An error that cannot be pickled."""

    def __init__(self, text: str, keep: Any) -> None:
        super().__init__(text)
        self.keep = lambda: keep


def build(place: Place, **options: Any) -> tuple[App, Celery]:
    """Return the app and the Celery app of the program."""
    folder = Path(place.folder)
    celery = Celery("shop", broker=place.broker, backend=place.broker)
    prefix = {"global_keyprefix": f"{place.name}:"}
    celery.conf.update(
        task_default_queue=f"{place.name}-main",
        task_routes={"shop.ship": {"queue": f"{place.name}-slow"}},
        broker_transport_options=prefix,
        result_backend_transport_options=prefix,
        accept_content=["json", "pickle"],
        result_expires=60,
        worker_hijack_root_logger=False,
    )

    def task(**options: Any) -> Callable[[Callable[..., Any]], Any]:
        decorate: Callable[[Callable[..., Any]], Any] = celery.task(shared=False, **options)
        return decorate

    def note(line: str) -> None:
        with (folder / "diary").open("a") as diary:
            diary.write(f"{line}\n")

    def is_fixed(name: str) -> bool:
        return (folder / f"{name} is fixed").exists()

    @task(name="shop.charge", bind=True, max_retries=2)
    def charge(self: Any, order: str, card_token: str, password: str = "", **more: Any) -> str:
        note(f"charge {order} {self.request.retries}")
        if not is_fixed(order):
            raise self.retry(countdown=0, exc=ValueError(f"card of {order} declined, password={password}"))
        return f"{order} is paid"

    @task(name="shop.ship")
    def ship(parcel: Any, at: datetime | None = None) -> Any:
        note(f"ship {parcel!r} {at}")
        if not is_fixed("ship"):
            raise ConnectionError("no lorry")
        return parcel

    @task(name="shop.weigh")
    def weigh(parcels: Any) -> int:
        note(f"weigh {parcels!r}")
        if not is_fixed("weigh"):
            raise ConnectionError("no scales")
        return len(parcels)

    @task(name="shop.pack")
    def pack(what: Any) -> str:
        note(f"pack {what}")
        return f"parcel with {what}"

    @task(name="shop.die", acks_late=False)
    def die(number: int) -> None:
        note(f"die {number}")
        if not is_fixed("die"):
            os.kill(os.getpid(), signal.SIGKILL)

    @task(name="shop.stall", time_limit=1)
    def stall() -> None:
        note("stall")
        if not is_fixed("stall"):
            time.sleep(60)

    @task(name="shop.reject", acks_late=True)
    def reject() -> None:
        raise Reject("not wanted", requeue=False)

    @task(name="shop.secretive")
    def secretive() -> None:
        raise Secretive("token=abcdefghijkl is not pickled", 1)

    @task(name="shop.order", bind=True)
    def order(self: Any, name: str) -> None:
        if not is_fixed("order"):
            raise ConnectionError("no stock")
        headers = dict(self.request.headers or {})  # as programs do that pass on the headers of a trace
        secretive.apply_async(task_id=f"child-of-{name}", headers=headers)
        end = time.monotonic() + 60
        while not is_fixed(f"wait for {name}"):  # the child ends first
            assert time.monotonic() < end
            time.sleep(0.02)
        raise ConnectionError("no stock again")

    connect(app := App(place.ledger), celery, **options)
    return app, celery


if "PROGRAM_LEDGER" in os.environ:
    app, celery = build(Place.of_environment())

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
