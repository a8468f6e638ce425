"""The message of a task as it is stored, and sent again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from celery.app.task import Context

from redrive.celery.message import JOB_HEADER, TaskMessage, parameter_names, replay_job_of
from redrive.worker.job_type import Undecodable

pytestmark = pytest.mark.req("X-8")
JSON_TYPE, PICKLE_TYPE = "application/json", "application/x-python-serialize"


def charge(order: str, card_token: str, *rest: Any, at: datetime | None = None) -> None: ...


def no_names(task: str) -> list[str]:
    return []


def request(**fields: Any) -> Context:
    headers = {"id": "t-1", "task": "shop.charge", "retries": 2, "expires": "2026-01-31", "origin": "gen1@host", **fields}
    return Context(headers, delivery_info={"exchange": "", "routing_key": "mail", "priority": 3, "redelivered": None})


def test_a_message_is_sent_to_its_queue_with_its_options() -> None:
    chain = [{"task": "shop.pack", "args": [], "kwargs": {}}]
    embedded = {"chain": chain, "chord": {"task": "shop.sum"}, "callbacks": None, "errbacks": [{"task": "shop.warn"}]}
    context = request(**embedded, group_index=0, timelimit=[60, 30], shadow=None, trace="abc", **{JOB_HEADER: "7:t-1"})
    options = TaskMessage.of_request("shop.charge", context, ("o-1",), {}).send_options(8)
    expected = {
        "task_id": "t-1",
        "queue": "mail",
        "priority": 3,
        "headers": {"trace": "abc", JOB_HEADER: "8:t-1", "ignore_result": None},
        "ignore_result": True,
        "expires": None,
        "chain": chain,
        "link_error": [{"task": "shop.warn"}],
        "group_index": 0,
        "time_limit": 60,
        "soft_time_limit": 30,
        "replaced_task_nesting": 0,
    }
    assert options == expected, "without its retries, its expiry and its chord"


@pytest.mark.parametrize(
    ("header", "job_id"), [("7:t-1", 7), ("7:t-2", None), ("7", None), (7, None), ("x:t-1", None), (None, None)]
)
def test_only_the_task_that_a_replay_has_sent_reports_to_it(header: object, job_id: int | None) -> None:
    assert replay_job_of(request(**{JOB_HEADER: header})) == job_id


@pytest.mark.parametrize("stored", [True, False, None])
def test_the_worker_stores_the_result_as_the_first_message_asked_for(stored: bool | None) -> None:
    options = TaskMessage.of_request("shop.charge", request(ignore_result=stored), (), {}).send_options(8)
    assert options["headers"]["ignore_result"] is stored, "None: as the task says"


def test_a_message_through_an_exchange_keeps_exchange_and_routing_key() -> None:
    message = TaskMessage("shop.charge", "t-1", queue={"exchange": "shop", "routing_key": "mail.fast"})
    options = message.send_options(1)
    assert (options["exchange"], options["routing_key"], "queue" in options) == ("shop", "mail.fast", False)


def test_arguments_have_the_names_of_their_parameters() -> None:
    names = parameter_names(charge)
    assert names == ["order", "card_token"]
    assert parameter_names(int) == [], "no signature"
    message = TaskMessage("shop.charge", "t-1", ["o-1", "secret", 3], {"at": datetime(2026, 1, 31, tzinfo=timezone.utc)})
    stored = message.encode({"shop.charge": names}.__getitem__, [])
    assert stored is not None
    assert json.loads(stored)["args"] == [{"order": "o-1"}, {"card_token": "secret"}, {"2": 3}]
    assert TaskMessage.decode(stored, [JSON_TYPE]) == message


def test_arguments_of_later_tasks_and_callbacks_have_names() -> None:
    def refund(task_id: str, card_token: str) -> None: ...
    def warn(request: object, error: object, traceback: object, card_token: str) -> None: ...
    def pack(paid: object, card_token: str) -> None: ...

    tasks: dict[str, Callable[..., object]] = {"shop.charge": charge, "shop.pack": pack, "shop.refund": refund, "shop.warn": warn}
    group = {"task": "celery.group", "args": [], "kwargs": {"tasks": [{"task": "shop.pack", "args": ["s2"], "kwargs": {}}]}}
    options = {
        "chain": [{"task": "shop.pack", "args": ["s1"], "options": {"link_error": [{"task": "shop.refund", "args": ["s3"]}]}}],
        "link": [group, {"task": "shop.charge", "args": ["o-1", "s4"], "immutable": True}],
        "link_error": [{"task": "shop.warn", "args": ["s5"]}, {"task": "other", "args": ["x"]}],
        "headers": {"task": "not a signature", "args": "text"},
    }
    message = TaskMessage("shop.charge", "t-1", [], options=options)
    stored = message.encode(lambda name: parameter_names(tasks[name]) if name in tasks else [], [])
    assert stored is not None
    for secret in ("s1", "s2", "s3", "s4", "s5"):
        assert f'{{"card_token": "{secret}"}}'.encode() in stored
    assert b'[{"3": "x"}]' in stored or b'[{"1": "x"}]' in stored, "the place, if the task is unknown"
    assert TaskMessage.decode(stored, [JSON_TYPE]) == message


def test_options_that_look_as_if_their_arguments_had_names_are_kept() -> None:
    options = {"headers": {"args_have_names": True, "args": ["o-1"]}}
    message = TaskMessage("t", "1", [], options=options)
    stored = message.encode(no_names, ["json"])
    assert stored is not None
    decoded = TaskMessage.decode(stored, [JSON_TYPE])
    assert decoded.options == {**options, "serializer": "json"}


def test_a_message_of_an_older_version_has_no_names_in_its_options() -> None:
    options = {"chain": [{"task": "shop.pack", "args": ["o-1"], "kwargs": {}}]}
    stored = json.dumps({"task": "t", "id": "1", "args": [], "kwargs": {}, "queue": {}, "options": options}).encode()
    assert TaskMessage.decode(stored, [JSON_TYPE]).options == options


@pytest.mark.parametrize("value", [1, 1.5, None, "é\ud83d", [1, {"a": None}], UUID(int=7), Decimal("1.10"), {"b": [True]}])
def test_values_that_json_keeps_are_stored_as_json(value: Any) -> None:
    message = TaskMessage("t", "1", [value])
    stored = message.encode(no_names, ["pickle"])
    assert stored is not None
    assert stored.startswith(b"{")
    assert TaskMessage.decode(stored, [JSON_TYPE]) == message


@pytest.mark.parametrize("value", [(1, 2), {1, 2}, {1: "a"}, b"\x00", object, [(1,)]])
def test_values_that_json_would_change_are_stored_in_another_serializer(value: Any) -> None:
    message = TaskMessage("t", "1", [value], queue={"routing_key": "mail"}, options={"chain": [(1,)]})
    stored = message.encode(no_names, ["pickle"])
    assert stored is not None
    assert stored.startswith(b"\xff")
    decoded = TaskMessage.decode(stored, [PICKLE_TYPE])
    assert (decoded.args, decoded.queue, decoded.options) == ([value], message.queue, {"chain": [(1,)], "serializer": "pickle"})
    with pytest.raises(Undecodable, match="stored as application/x-python-serialize, which the Celery app does not accept"):
        TaskMessage.decode(stored, [JSON_TYPE])
    with pytest.raises(Undecodable, match="an edited message must be JSON"):
        TaskMessage.decode(stored, [PICKLE_TYPE], is_edited=True)


def test_a_message_that_no_serializer_takes_is_reported() -> None:
    message = TaskMessage("t", "1", [lambda: None])
    assert message.encode(no_names, ["json", "pickle"]) is None
    with pytest.raises(Undecodable, match=r"the arguments of the task are not stored \(too large\); send it again") as raised:
        TaskMessage.decode(message.encode_without_arguments("too large"), [JSON_TYPE])
    assert raised.value.reason == "payload_lost"


def test_a_class_that_cannot_be_read_any_more_is_a_reason_not_a_crash() -> None:
    stored = TaskMessage("t", "1", [{1}]).encode(no_names, ["pickle"])
    assert stored is not None
    with pytest.raises(Undecodable, match="cannot be read"):
        TaskMessage.decode(stored[:-3], [PICKLE_TYPE])


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"{", "the payload is not JSON"),
        (b"[1]", "the payload is not the message of a Celery task"),
        (b'{"order": 1}', "the payload is not the message of a Celery task"),
        (b'{"task": "t", "args": {}, "kwargs": {}}', 'the message needs "args"'),
        (b'{"task": "t", "args": [1], "kwargs": {}}', 'each of "args" must be an object with one entry'),
        (b'{"task": "t", "args": [{"a": 1, "b": 2}], "kwargs": {}}', 'each of "args" must be an object with one entry'),
    ],
)
def test_a_payload_without_a_message_is_rejected(payload: bytes, problem: str) -> None:
    with pytest.raises(Undecodable, match=problem):
        TaskMessage.decode(payload, [JSON_TYPE])
