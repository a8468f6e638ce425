"""Protocol: what a worker and a process of its pool send each other, over a socket.

A message is a pickled tuple after its length. Both ends run the same code.

A process cannot inherit the function of a job, so it gets a reference: the module and the name of a
command. The process imports the module, as a new worker would. A script is imported under another
name than `__main__`, so that a block `if __name__ == "__main__":` does not run.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import sys
from contextvars import ContextVar
from datetime import datetime
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ...core.callables import qualified_name
from ...errors import LedgerError, Stop
from ...ledger.db.address import Address
from ...ledger.model import Lease, Settlement
from ..job_type import JobType
from ..outcome import JobOutcome

LENGTH = struct.Struct("!Q")
CHUNK_BYTES = 1 << 16


class Startup(NamedTuple):
    """First message to a process: what it imports before its first job."""

    references: dict[str, FunctionReference]
    """By job type."""
    address: Address
    """Of the ledger, for steps. It is opened at first use."""
    max_payload: int


class Ready(NamedTuple):
    """First message of a process."""

    data_bytes: int
    """Memory of the process before its first job."""


class Call(NamedTuple):
    """One attempt.

    Attributes:
        lease: Of the job.
        seconds: Seconds that the attempt may take.
        now: By the ledger's clock.
        memory_limit: Maximum memory of the process, in bytes.
    """

    lease: Lease
    seconds: float
    now: datetime
    memory_limit: int | None


class Reply(NamedTuple):
    """The end of an attempt.

    Attributes:
        result: The stored result.
        outcome: What follows from the error, decided where the error is.
        error_class: Name of the error's class.
        error: Text of the error.
        suspension: The settlement of a job that sleeps or waits. It is in the ledger.
        is_late: The lease was lost when the job was to sleep or wait.
        data_bytes: Memory of the process after the attempt.
    """

    result: bytes | None = None
    outcome: JobOutcome | None = None
    error_class: str = ""
    error: str = ""
    suspension: Settlement | None = None
    is_late: bool = False
    data_bytes: int = 0

    @property
    def has_returned(self) -> bool:
        """Whether the function returned."""
        return not self.error_class


def encode(message: NamedTuple, /) -> bytes:
    """Return a message with its length."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


class Decoder:
    """Collects received bytes until a message is complete. Belongs to one thread."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, received: bytes, /) -> None:
        """Add received bytes."""
        self._buffer += received

    def next(self) -> Any:
        """Remove and return the next message, or None if it is not complete."""
        end = LENGTH.size
        if len(self._buffer) < end:
            return None
        end += LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        content = bytes(memoryview(self._buffer)[LENGTH.size : end])
        del self._buffer[:end]
        return pickle.loads(content)  # noqa: S301  # from our own process


def receive(connection: socket.socket, decoder: Decoder, /) -> Any:
    """Wait for the next message, and return it. None if the other end was closed."""
    while (message := decoder.next()) is None:
        received = connection.recv(CHUNK_BYTES)
        if not received:
            return None
        decoder.feed(received)
    return message


# --- References to functions

MAIN_NAME = "__redrive_main__"
"""Name under which a process imports the script of its worker."""
_IMPORTING = ContextVar("importing", default=False)
"""Whether a new process imports the module of a command now."""


class FunctionReference(NamedTuple):
    """Where a command is defined. Immutable.

    Attributes:
        module: Name of its module.
        name: Qualified name in the module.
        script: File of the module, if it is a script.
    """

    module: str
    name: str
    script: str | None = None


def reference_to(job_type: JobType, /) -> FunctionReference:
    """Return the reference to the function of a job type.

    Raises:
        TypeError: A new process would not find the function.
    """
    fn = job_type.fn
    place, problem = qualified_name(fn), "is not a function of a module"
    module, name = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        if "<" not in name:
            reference = _locate(module, name)
            if reference is not None and _find(sys.modules[module], name, job_type):
                return reference
            problem = (
                "is in a program that is not a file (a zip, or a prompt)"
                if reference is None and module == "__main__"
                else f"is not the command {job_type.name!r} in its module"
            )
        else:
            problem = "is defined inside a function"
    raise TypeError(
        f"{job_type.name}: {place} {problem}, so that a new process cannot import it; "
        "decorate a function at the top level of a module, and keep its name"
    )


def check_processes(job_types: list[JobType], address: Address, /) -> None:
    """Raise an error if these job types cannot run in processes here.

    Args:
        job_types: Those with isolation.
        address: Of the ledger.
    """
    for job_type in job_types:
        if _IMPORTING.get():
            raise Stop(  # of the job that the process was started for: no attempt would succeed
                f"{job_type.name}: its module starts a worker when it is imported, so that each "
                'process would start one; start it under `if __name__ == "__main__":`'
            )
        if os.name != "posix":
            raise RuntimeError(
                f"{job_type.name}: isolation='process' needs Linux or macOS; remove it to use "
                "threads"
            )
        if job_type.memory_limit is not None and not sys.platform.startswith("linux"):
            raise RuntimeError(
                f"{job_type.name}: memory_limit= needs Linux; remove it on this system"
            )
        if address.in_memory:
            raise LedgerError(
                f"{job_type.name}: isolation='process' needs a ledger that other processes reach, "
                "in a file or on Postgres"
            )
        reference_to(job_type)


def load_job_type(reference: FunctionReference, /) -> JobType:
    """Import a command in a new process, and return its job type.

    Raises:
        LookupError: The module has no such command.
        Exception: The module raised this error when it was imported.
    """
    token = _IMPORTING.set(True)
    try:
        module = (
            import_module(reference.module)
            if reference.script is None
            else _import_script(reference.script)
        )
    finally:
        _IMPORTING.reset(token)
    job_type = _job_type_at(module, reference.name)
    if job_type is None:
        raise LookupError(
            f"{reference.module}.{reference.name} is not a command in a new process; "
            "register it when the module is imported, without a condition"
        )
    return job_type


def _locate(module: str, name: str) -> FunctionReference | None:
    if module != "__main__":
        return FunctionReference(module, name) if module in sys.modules else None
    main = sys.modules[module]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":  # python -m module
        return FunctionReference(spec.name, name)
    file = Path(getattr(main, "__file__", None) or "")  # a folder or a zip has a __main__.py
    return FunctionReference(module, name, str(file.absolute())) if file.is_file() else None


def _find(module: ModuleType, name: str, job_type: JobType) -> bool:
    resolved = _job_type_at(module, name)
    return resolved is not None and resolved.name == job_type.name and resolved.fn is job_type.fn


def _job_type_at(module: ModuleType, name: str) -> JobType | None:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    job_type = getattr(value, "job_type", None)
    return job_type if isinstance(job_type, JobType) else None


def _import_script(path: str) -> ModuleType:
    if MAIN_NAME not in sys.modules:
        spec = spec_from_file_location(MAIN_NAME, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be imported by a new process")
        module = module_from_spec(spec)
        sys.modules[MAIN_NAME] = sys.modules["__main__"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[MAIN_NAME]  # as `import` does, so that no command of it is half there
            raise
    return sys.modules[MAIN_NAME]
