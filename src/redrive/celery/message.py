"""TaskMessage: the message of a Celery task, as a dead letter stores it and as a replay sends it.

A message is stored as JSON if JSON keeps its arguments as they are. Otherwise it is stored in the
serializer of the task, such as pickle. Redrive does not read such a message. Celery decodes it in
the worker that sends it again, if the Celery app accepts the serializer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from kombu.exceptions import ContentDisallowed
from kombu.serialization import dumps, loads, registry
from kombu.utils import json

from ..worker.job_type import Undecodable

JOB_HEADER = "redrive_job"
"""Header of a message that a replay has sent: the job of the ledger that waits for its end, and
the id of the task. A task may pass its headers on to other tasks, which are not the replay."""
OPAQUE = b"\xff"
"""First byte of a message that is not stored as JSON. UTF-8 has no such byte, so that no page
shows the message as text."""
NOT_REPEATED = frozenset(("task_id", "expires", "retries", "chord", "origin"))
"""Options of the first message that a replay does not have. Its retries begin again, and it does
not expire. The chord of a failed task has ended: Celery has called its errbacks."""
NAMED = "args_have_names"
"""Field of a stored signature whose positional arguments have the names of their parameters."""
RESULTS, ERROR_ARGUMENTS = 1, 3
"""Positional arguments that Celery puts before those of a later task and of an errback."""
LOST = "arguments_lost"
"""Field of a stored message without its arguments: why they are not there."""

NamesOf = Callable[[str], Sequence[str]]
"""Returns the names of the positional parameters of a task, by its name. Empty if unknown."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """The message of a task. Immutable.

    Attributes:
        task: Name of the task.
        task_id: Id of the task. A replay has the same.
        args: Positional arguments.
        kwargs: Keyword arguments.
        queue: Exchange, routing key and priority.
        options: Other options, such as the rest of a chain.
    """

    task: str
    task_id: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    queue: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_request(cls, task: str, request: Any, args: Any, kwargs: Any, /) -> Self:
        """Return the message of a request, as a worker of Celery has it.

        Args:
            task: Name of the task.
            request: `celery.app.task.Context`.
            args: Positional arguments.
            kwargs: Keyword arguments.
        """
        options = {
            name: value
            for name, value in request.as_execution_options().items()
            if name not in NOT_REPEATED and value not in (None, {}, [], "")
        }
        headers = dict(options.pop("headers", {}))
        headers.pop(JOB_HEADER, None)
        if headers:
            options["headers"] = headers
        if vars(request).get("ignore_result") is not None:
            options["ignore_result"] = bool(request.ignore_result)
        delivery = request.delivery_info or {}
        names = ("exchange", "routing_key", "priority")
        queue = {name: delivery[name] for name in names if delivery.get(name) is not None}
        return cls(task, str(request.id), list(args or ()), dict(kwargs or {}), queue, options)

    @property
    def queue_name(self) -> str:
        """Name of the queue, or the routing key if the message went through an exchange."""
        return str(self.queue.get("routing_key") or "")

    def send_options(self, job_id: int, /) -> dict[str, Any]:
        """Return the arguments of `Celery.send_task` for a replay.

        Args:
            job_id: Job of the ledger that waits for the end of the task.
        """
        target = dict(self.queue)
        if target.get("exchange") == "" and target.get("routing_key"):
            del target["exchange"]  # sent straight to a queue
            target["queue"] = target.pop("routing_key")
        headers = {
            **self.options.get("headers", {}),
            JOB_HEADER: f"{job_id}:{self.task_id}",
            "ignore_result": self.options.get("ignore_result"),
        }
        sent = {"task_id": self.task_id, "headers": headers, "expires": None}
        # The worker reads the header. The option is for the sender, which waits for no result:
        # the backend on Redis would subscribe to it, and not recover from a long outage.
        return {**self.options, **target, **sent, "ignore_result": True}

    # --- Stored form

    def encode(self, names_of: NamesOf, serializers: Iterable[str], /) -> bytes | None:
        """Return the stored form. None if no serializer takes the arguments.

        Args:
            names_of: Returns the names of the positional parameters of a task. Arguments have
                their names in the stored form, so that secrets are recognised by them.
            serializers: For arguments that JSON does not keep, in the order of preference.
        """
        return self._as_json(names_of) or self._as_opaque(serializers)

    def _as_json(self, names_of: NamesOf) -> bytes | None:
        """Return the message as JSON. None if it would be another one when it is read again."""
        options = dict(self.options)
        try:
            document = {
                "task": self.task,
                "id": self.task_id,
                "args": _add_names(self.args, names_of(self.task)),
                "kwargs": dict(self.kwargs),
                "queue": dict(self.queue),
                "options": _name_signatures(options, names_of),
            }
            text: str = json.dumps(document)
            stored = json.loads(text)
            is_same = stored == document and _restore_signatures(stored["options"]) == options
            return text.encode() if is_same else None
        except Exception:  # any error of the user's classes, which JSON does not know
            return None

    def _as_opaque(self, serializers: Iterable[str]) -> bytes | None:
        """Return the message in another serializer. None if none of them takes it."""
        body = (list(self.args), dict(self.kwargs), dict(self.options))
        for serializer in dict.fromkeys(serializers):
            with suppress(Exception):  # the next one may take it
                content_type, encoding, data = dumps(body, serializer=serializer)
                head = {"task": self.task, "id": self.task_id, "queue": dict(self.queue)}
                head |= {"content_type": content_type, "content_encoding": encoding}
                data = data.encode() if isinstance(data, str) else data
                return bytes(OPAQUE + json.dumps(head).encode() + b"\n" + data)
        return None

    def encode_without_arguments(self, because: str, /) -> bytes:
        """Return the stored form of a message whose arguments cannot be stored."""
        text: str = json.dumps({"task": self.task, "id": self.task_id, LOST: because})
        return text.encode()

    @classmethod
    def decode(cls, payload: bytes, accept: Iterable[str], /, *, is_edited: bool = False) -> Self:
        """Return a stored message.

        Args:
            payload: The stored form.
            accept: Content types that the Celery app accepts.
            is_edited: Whether an operator has edited it. Then only JSON is taken: a pickle could
                run any code.

        Raises:
            Undecodable: It is not a message, or its serializer is not accepted.
        """
        if payload[:1] == OPAQUE:
            if is_edited:
                raise Undecodable("an edited message must be JSON; replay it without --edit")
            return cls._of_opaque(payload, accept)
        try:
            document = json.loads(payload)
        except ValueError as error:
            raise Undecodable("the payload is not JSON", str(error)) from None
        if not isinstance(document, dict) or not isinstance(document.get("task"), str):
            raise Undecodable("the payload is not the message of a Celery task")
        if LOST in document:
            raise Undecodable(
                f"the arguments of the task are not stored ({document[LOST]}); send it again from "
                "your program, and discard this dead letter",
                reason="payload_lost",
            )
        kwargs, args = document.get("kwargs"), document.get("args")
        if not isinstance(kwargs, dict) or not isinstance(args, list):
            raise Undecodable('the message needs "args" (a list) and "kwargs" (an object)')
        values = [value for each in args for value in _named_value(each)]
        queue, options = document.get("queue") or {}, document.get("options") or {}
        options = _restore_signatures(options)
        return cls(document["task"], str(document.get("id")), values, kwargs, queue, options)

    @classmethod
    def _of_opaque(cls, payload: bytes, accept: Iterable[str]) -> Self:
        text, _, data = payload[1:].partition(b"\n")
        head = json.loads(text)
        kind, encoding = head["content_type"], head["content_encoding"]
        try:
            args, kwargs, options = loads(data, kind, encoding, accept=set(accept))
        except ContentDisallowed:
            raise Undecodable(
                f"its arguments are stored as {kind}, which the Celery app does not accept; "
                "add it to accept_content"
            ) from None
        except Exception as error:  # of the user's classes
            raise Undecodable(f"its arguments, stored as {kind}, cannot be read", str(error)) from (
                error
            )
        options = {**options, "serializer": registry.type_to_name.get(kind)}
        return cls(head["task"], head["id"], args, kwargs, head["queue"], options)


def replay_job_of(request: Any, /) -> int | None:
    """Return the job that waits for the end of a task. None: the task is not a replay."""
    header = str((request.headers or {}).get(JOB_HEADER))
    job_id, _, task_id = header.partition(":")
    return int(job_id) if job_id.isdecimal() and task_id == str(request.id) else None


def _add_names(arguments: Sequence[Any], names: Sequence[str], before: int = 0) -> list[Any]:
    """Return positional arguments with the names of their parameters.

    Args:
        before: Number of arguments that Celery adds before them.
    """
    places = range(before, before + len(arguments))
    keys = [names[place] if place < len(names) else str(place) for place in places]
    return [{key: value} for key, value in zip(keys, arguments, strict=True)]


def _name_signatures(value: Any, names_of: NamesOf, before: int = RESULTS) -> Any:
    """Return options in which the arguments of later tasks and callbacks have names."""
    if isinstance(value, list):
        return [_name_signatures(item, names_of, before) for item in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {
        key: _name_signatures(item, names_of, ERROR_ARGUMENTS if key == "link_error" else RESULTS)
        for key, item in value.items()
    }
    arguments = value.get("args")
    if isinstance(value.get("task"), str) and isinstance(arguments, list):
        names = names_of(value["task"])
        if before == ERROR_ARGUMENTS and len(names) < before + len(arguments):
            before = RESULTS  # an errback that takes the id of the task only
        renamed["args"] = _add_names(arguments, names, 0 if value.get("immutable") else before)
        renamed[NAMED] = True
    return renamed


def _restore_signatures(value: Any) -> Any:
    """Return options as Celery takes them, without the names of arguments."""
    if isinstance(value, list):
        return [_restore_signatures(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    restored = {key: _restore_signatures(item) for key, item in value.items() if key != NAMED}
    if NAMED in value:
        given = value.get("args") or []
        items = given if isinstance(given, list) else [given]
        restored["args"] = [each for item in items for each in _named_value(item)]
    return restored


def _named_value(argument: object) -> Iterable[Any]:
    if not isinstance(argument, dict) or len(argument) != 1:
        raise Undecodable('each of "args" must be an object with one entry: its name and value')
    return argument.values()


def parameter_names(run: Callable[..., Any], /) -> list[str]:
    """Return the names of the positional parameters of a task."""
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):  # no signature
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in parameters if each.kind in positional]
