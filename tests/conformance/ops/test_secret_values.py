"""A secret in a payload that cannot be decoded: in no error, wherever errors go."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive import App, Event, journal
from redrive.console import asgi
from redrive.ledger import Ledger, NewJob
from redrive.ops import Operator
from tests.ledgers import texts_in
from tests.unit.cli.command import call

SECRET = "S3cretV4lue-of-ann"
SOON = 60
TOKEN = "0123456789abcdef-token"
PAYLOADS = ("payload", "response", "result", "edits")
"""Columns that must hold the submitted values."""


class Colour(Enum):
    RED = "red"


@dataclass
class Plain:
    password: int


@dataclass
class Checked:
    password: str

    def __post_init__(self) -> None:
        raise ValueError(f"weak: {self.password}")


class Named(NamedTuple):
    password: int


class Typed(TypedDict):
    password: int


class Model(pydantic.BaseModel):
    password: int


class Weak(pydantic.BaseModel):
    password: str

    @pydantic.field_validator("password")
    @classmethod
    def strong(cls, value: str) -> str:
        raise ValueError(f"{value} is weak")


class Cat(pydantic.BaseModel):
    password: Literal["cat"]


class Dog(pydantic.BaseModel):
    password: Literal["dog"]


class Tagged(pydantic.BaseModel):
    inner: Cat | Dog = pydantic.Field(discriminator="password")


class Keyed(pydantic.BaseModel):
    by_name: dict[str, int]


class Struct(msgspec.Struct):
    password: int


class Coloured(msgspec.Struct):
    password: Literal["red"]


class Refusing(msgspec.Struct):
    password: str

    def __post_init__(self) -> None:
        raise ValueError(f"weak: {self.password}")


@attrs.define
class Attrs:
    password: str = attrs.field(validator=attrs.validators.matches_re("[0-9]+"))


ONE = {"password": SECRET}
CASES: list[tuple[Any, Any]] = [
    *((kind, SECRET) for kind in (int, float, bool, datetime, date, Decimal, UUID, Colour, Literal["a", 7])),
    *((kind, SECRET) for kind in (int | None, int | bool, list[int], dict[str, int], Plain, Model, Struct)),
    *((kind, [SECRET]) for kind in (list[int], tuple[int, int], tuple[int], set[int])),
    (dict[str, int], {SECRET: SECRET}),
    (dict[int, str], {SECRET: "x"}),
    (list[Plain], [{"password": 1}, {"password": SECRET}]),
    *((kind, ONE) for kind in (Plain, Checked, Named, Typed, Model, Weak, Struct, Coloured, Refusing, Attrs)),
    (Tagged, {"inner": {"password": SECRET}}),
    (Keyed, {"by_name": {SECRET: "x"}}),
]


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    unsubscribe = journal.subscribe(journal.otel(tracer_provider=provider))
    yield exporter
    unsubscribe()


@pytest.fixture
def records() -> Iterator[list[journal.Record]]:
    heard: list[journal.Record] = []
    unsubscribe = journal.subscribe(heard.append, every=True)
    yield heard
    unsubscribe()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


def take(app: App, name: str, annotation: Any) -> None:
    def command(password: Any) -> None: ...

    command.__annotations__["password"] = annotation
    app.command(f"take.{name}")(command)

    def handler(event: Any) -> None: ...

    handler.__annotations__["event"] = Event[annotation]
    app.on(f"came.{name}", name=f"handle.{name}")(handler)


@pytest.mark.req("M-6")
def test_an_undecodable_payload_leaks_into_no_error(
    url: str,
    ledger: Ledger,
    spans: InMemorySpanExporter,
    records: list[journal.Record],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="redrive")
    with App(ledger) as app:
        for number, (annotation, _) in enumerate(CASES):
            take(app, str(number), annotation)
        ledger.submit_many(
            [
                NewJob(f"take.{number}", f"shop:x:{number}:take:v1", json.dumps({"password": value}).encode())
                for number, (_, value) in enumerate(CASES)
            ]
        )
        for number, (_, value) in enumerate(CASES):
            app.receive(Event(f"came.{number}", value, id=f"e-{number}"))
        with app.worker():
            wait_for(lambda: len(ledger.dead_letters(limit=1000)) == 2 * len(CASES))
        letters = ledger.dead_letters(limit=1000)
        assert {letter.reason for letter in letters} == {"undecodable"}
        assert all(SECRET not in (letter.error or "") for letter in letters), [x.error for x in letters]
        assert [place for place, text in texts_in(ledger, without=PAYLOADS) if SECRET in text] == []
        assert journal.flush()
        assert SECRET not in repr(records)
        assert SECRET not in caplog.text + repr([vars(record) for record in caplog.records])
        assert spans.get_finished_spans()
        assert SECRET not in "".join(span.to_json() for span in spans.get_finished_spans())
        token = "0123456789abcdef-token"
        console = TestClient(asgi(app, token=token), headers={"authorization": f"Bearer {token}"})
        errors = [one["error"] for one in Operator(ledger, actor="ann").dead_letters.export(status=None)]
        assert SECRET not in repr(errors)
        for page in ("/dead", "/failures", "/journal", "/api/dead", *(f"/dead/{letter.id}" for letter in letters[:3])):
            shown = console.get(page)
            assert shown.status_code == 200, page
            assert SECRET not in shown.text, page
    for words in (["dead", "list"], ["dead", "show", str(letters[0].id)], ["failures", "list"], ["dead", "list", "--json"]):
        assert SECRET not in call(*words, "--ledger", url)[1]


def test_an_error_names_the_path_and_the_expected_type(ledger: Ledger) -> None:
    with App(ledger) as app:
        take(app, "nested", list[Plain])
        take(app, "model", Model)
        ledger.submit(NewJob("take.nested", "k:a:b:c:v1", json.dumps({"password": [{"password": SECRET}]}).encode()))
        ledger.submit(NewJob("take.model", "k:a:b:d:v1", json.dumps({"password": ONE}).encode()))
        with app.worker():
            wait_for(lambda: len(ledger.dead_letters()) == 2)
    said = {letter.kind: letter.error or "" for letter in ledger.dead_letters()}
    assert "take.nested: expected int, not str (at password[0].password)" in said["take.nested"]
    assert "parse string as an integer (at password.password)" in said["take.model"]
