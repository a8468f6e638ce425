"""PerProcess and ForkSafeLock: one client for each process, and no lock from the parent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from redrive.storage.deadline import ForkSafeLock, PerProcess


def succeeds_in_child(check: Callable[[], bool]) -> bool:
    """Fork, and return whether the check is True in the child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_client_is_created_once() -> None:
    created: list[object] = []

    def create() -> object:
        created.append(object())
        return created[-1]

    client: PerProcess[object] = PerProcess()
    assert client.get(create) is client.get(create)
    assert len(created) == 1


def test_pop_returns_the_client_and_the_next_use_creates_another() -> None:
    client: PerProcess[object] = PerProcess()
    assert client.pop() is None
    first = client.get(object)
    assert client.pop() is first
    assert client.pop() is None
    assert client.get(object) is not first


def test_a_forked_child_creates_its_own_client_and_does_not_close_the_parents() -> None:
    client: PerProcess[int] = PerProcess()
    assert client.get(os.getpid) == os.getpid()
    assert succeeds_in_child(lambda: client.get(os.getpid) == os.getpid())
    assert succeeds_in_child(lambda: client.pop() is None)
    assert client.pop() == os.getpid()


def test_a_lock_held_at_the_fork_is_free_in_the_child() -> None:
    lock = ForkSafeLock()
    with lock.of_this_process():
        assert lock.of_this_process().locked()
        assert succeeds_in_child(lambda: lock.of_this_process().acquire(timeout=10))
    assert not lock.of_this_process().locked()


def test_threads_of_a_process_get_the_same_lock() -> None:
    lock = ForkSafeLock()
    locks: list[threading.Lock] = []
    threads = [threading.Thread(target=lambda: locks.append(lock.of_this_process())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert set(map(id, locks)) == {id(lock.of_this_process())}
