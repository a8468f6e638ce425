"""CeleryBridge: makes dead letters of Celery tasks that fail for good, and replays them.

Signals of Celery tell it how tasks end: in the process that ran a task, or in the main process of
the worker if that process was killed. It opens nothing before a task fails.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

from celery import VERSION, Celery, signals, states
from celery.app.task import Context
from celery.exceptions import NotRegistered

from ..core.key import Key
from ..core.seconds import Seconds, positive
from ..ledger.ledger import Ledger
from ..ledger.model import NewJob
from ..worker.job_type import JobType
from .ledger_writer import LedgerWriter, report_loss
from .message import TaskMessage, parameter_names, replay_job_of
from .replay import PREFIX, Replayer, is_recorded, serializers_of
from .task_end import TaskEnd, is_requeued

DAY_SECONDS = 86_400.0
NOT_STORED = "too large for the ledger, or no serializer of the Celery app reads or writes them"
HIDES_REJECTS = VERSION < (5, 7)
"""Whether this version of Celery reports no failure of a task that is rejected without requeue. A
task whose retry cannot be sent is rejected, too."""
SEEN = "redrive_seen"
"""Attribute of a request whose failure was recorded: Celery reports a time limit twice."""
_CONNECTED: WeakSet[Celery] = WeakSet()
"""Celery apps that have a bridge."""


class _Registrations(Protocol):
    """The part of an app's registrations that a bridge uses."""

    bridges: list[CeleryBridge]


class _App(Protocol):
    """The part of an app that a bridge uses."""

    @property
    def ledger(self) -> Ledger:
        """The ledger, opened at first use."""

    @property
    def registrations(self) -> _Registrations:
        """All that is registered in the app."""


def connect(app: _App, celery: Celery, /, *, replay_timeout: Seconds = DAY_SECONDS) -> CeleryBridge:
    """Make dead letters of the tasks of a Celery app that fail for good.

    Call it in the module that creates the Celery app, so that every worker of Celery imports it.
    It opens nothing: no file, no socket, no thread. A worker of the Redrive app sends replays.

    Args:
        app: The Redrive app, whose ledger has the dead letters.
        celery: The Celery app.
        replay_timeout: How long a replay waits until a Celery worker has reported the end of its
            task. After this time, it is a dead letter again.

    Returns:
        The bridge.

    Raises:
        ImportError: Celery is too old.
        TypeError: One of them is not an app, or they are swapped.
        ValueError: The Celery app is connected already.
    """
    if VERSION < (5, 4):
        version = ".".join(map(str, VERSION[:3]))
        raise ImportError(
            f"redrive.celery needs Celery 5.4 or later, not {version}: "
            'pip install "redrive[celery]"'
        )
    if not hasattr(app, "registrations"):
        raise TypeError(
            f"connect: the first argument must be a redrive.App, not {type(app).__name__}; "
            "write connect(app, celery)"
        )
    unwrap = getattr(celery, "_get_current_object", None)  # of a proxy, such as `current_app`
    celery = celery if unwrap is None else unwrap()
    if not isinstance(celery, Celery):
        raise TypeError(
            f"connect: the second argument must be a celery.Celery, not {type(celery).__name__}; "
            "write connect(app, celery)"
        )
    if celery in _CONNECTED:
        raise ValueError(
            f"connect: the Celery app {celery.main!r} is connected already; call connect once"
        )
    bridge = CeleryBridge(
        app, celery, timedelta(seconds=positive("replay_timeout", replay_timeout))
    )
    app.registrations.bridges.append(bridge)
    bridge.listen()
    return bridge


class CeleryBridge:
    """Connects a Celery app with a ledger. Made by `connect`.

    Threads and forked children may share it.
    """

    def __init__(self, app: _App, celery: Celery, replay_timeout: timedelta, /) -> None:
        self._celery = celery
        self._writer = LedgerWriter(lambda: app.ledger)
        self._replayer = Replayer(celery, lambda: app.ledger, replay_timeout)
        self._received: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """Requests in the main process of a worker, by the id of their task."""
        self._receivers = (
            (signals.task_received, self._on_received),
            (signals.task_failure, self._on_failure),
            (signals.task_postrun, self._on_postrun),
            (signals.task_revoked, self._on_revoked),
            (signals.task_unknown, self._on_unknown),
        )

    def listen(self) -> None:
        """Begin to follow the tasks of the Celery app."""
        _CONNECTED.add(self._celery)
        for signal, receiver in self._receivers:
            signal.connect(receiver, weak=False)

    def disconnect(self) -> None:
        """Stop following the tasks. Dead letters that exist can still be replayed."""
        _CONNECTED.discard(self._celery)
        for signal, receiver in self._receivers:
            signal.disconnect(receiver)

    @property
    def job_types(self) -> list[JobType]:
        """The job types that send tasks again."""
        return self._replayer.job_types

    def payload_problem(self, kind: str, payload: bytes, /) -> str | None:
        """Return why a payload does not fit a task. None if it fits, or cannot be checked."""
        return self._replayer.payload_problem(kind, payload)

    # --- Signals of Celery

    def _on_received(self, request: Any = None, **_: Any) -> None:
        # Celery reports some failures without the request, such as an exceeded time limit.
        self._received[request.id] = request

    def _on_failure(
        self,
        sender: Any = None,
        task_id: str = "",
        exception: BaseException | None = None,
        args: Any = (),
        kwargs: Any = None,
        **_: Any,
    ) -> None:
        """A task failed, and Celery does not retry it."""
        if not self._is_own(sender) or exception is None or is_requeued(sender, exception):
            return
        request = self._request_of(sender, task_id)
        if request.is_eager or getattr(request, SEEN, False):
            return
        setattr(request, SEEN, True)
        end = TaskEnd.of_failure(sender, request, exception)
        self._end(sender.name, request, end, args, kwargs, task=sender)

    def _on_postrun(
        self, sender: Any = None, state: str | None = None, retval: Any = None, **given: Any
    ) -> None:
        """A task ended. Only a replay is of interest here, unless it failed."""
        if state == states.REJECTED and HIDES_REJECTS and not getattr(retval, "requeue", True):
            self._on_failure(sender, exception=retval, **given)
            return
        request = sender.request
        is_replay = replay_job_of(request) is not None
        if is_replay and state in (states.SUCCESS, states.IGNORED) and self._is_own(sender):
            end = TaskEnd("done", attempts=(request.retries or 0) + 1, worker=request.hostname)
            self._end(sender.name, request, end, request.args, request.kwargs)

    def _on_revoked(self, sender: Any = None, request: Any = None, **_: Any) -> None:
        """A task was revoked, or has expired. That is a decision, and no failure."""
        if self._is_own(sender) and replay_job_of(request) is not None:
            end = TaskEnd("cancelled", error="the task was revoked", worker=request.hostname)
            self._end(sender.name, request, end, request.args, request.kwargs)

    def _on_unknown(
        self,
        sender: Any = None,
        message: Any = None,
        name: str = "",
        **given: Any,
    ) -> None:
        """A worker got a task that it does not know. Celery drops the message."""
        if getattr(sender, "app", None) is not self._celery:
            return
        args: Any = None
        kwargs: Any = None
        fields = {**message.headers, "id": given.get("id")}
        with suppress(Exception):  # such as a pickle of a class that this worker does not have
            body = message.payload
            if isinstance(body, dict):  # version 1 of the protocol, which other programs send
                args, kwargs, fields = body.get("args") or (), body.get("kwargs"), body
            else:
                args, kwargs, embedded = body
                fields |= embedded or {}
        place = {"delivery_info": message.delivery_info, "hostname": sender.hostname}
        request = Context({**fields, **place})
        end = TaskEnd.of_failure(None, request, NotRegistered(name))
        self._end(name, request, end, args, kwargs)

    # --- The ledger

    def _is_own(self, task: Any) -> bool:
        return getattr(task, "app", None) is self._celery and is_recorded(task.name)

    def _names_of(self, task: str) -> list[str]:
        """Return the names of the positional parameters of a task. Empty if unknown."""
        known = self._celery.tasks.get(task)
        return [] if known is None else parameter_names(known.run)

    def _request_of(self, task: Any, task_id: str) -> Any:
        request = task.request
        if request.id == task_id:
            return request
        received = self._received.get(task_id)
        if received is None:
            return Context(id=task_id, called_directly=False)
        return received._context

    def _end(
        self, name: str, request: Any, end: TaskEnd, args: Any, kwargs: Any, task: Any = None
    ) -> None:
        """Write the end of a task. A failure of the ledger never reaches Celery.

        Without `args`, the message could not be decoded.
        """
        kind, payload = PREFIX + name, b""
        try:
            job_id = replay_job_of(request)
            if job_id is not None and self._writer.report_end(job_id, end):
                return
            if end.outcome == "dead":
                message = TaskMessage.of_request(name, request, args, kwargs)
                lost = message.encode_without_arguments(NOT_STORED)
                if args is not None:
                    serializers = serializers_of(self._celery, task)
                    payload = message.encode(self._names_of, serializers) or b""
                payload = payload or lost
                self._writer.record(_job_of(kind, message, request, payload), end, lost)
        except Exception as error:
            report_loss(kind, str(request.id), payload, error)


def _job_of(kind: str, message: TaskMessage, request: Any, payload: bytes) -> NewJob:
    related = {"root_id": request.root_id, "parent_id": request.parent_id}
    ids = {name: str(value) for name, value in related.items() if value not in (None, request.id)}
    return NewJob(
        kind=kind,
        key=str(Key("celery", "", message.task_id, "run")),
        payload=payload,
        ids={"task_id": message.task_id, **ids},
        tags={"queue": message.queue_name} if message.queue_name else None,
    )
