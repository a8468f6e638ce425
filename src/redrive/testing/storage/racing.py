"""Racing: of several at once, one wins; readers see the old or the new."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import AlreadyExists, RedriveError, StorageError
from ...storage import FileInfo, Store
from .sample import body


class Racing:
    """Only if absent, old or new, many threads."""

    def test_create_refuses_what_is_there(self, store: Store) -> None:
        store.create("a/file", b"first")
        with pytest.raises(AlreadyExists) as caught:
            store.create("a/file", b"second")
        assert caught.value.path.endswith("a/file")
        assert caught.value.backend == store.backend.name
        assert store.read_bytes("a/file") == b"first"
        store.delete("a/file")
        store.create("a/file", b"third")
        assert store.read_bytes("a/file") == b"third"

    def test_of_many_creators_one_wins(self, store: Store) -> None:
        if not store.capabilities.exclusive_create:
            pytest.skip("this backend says that it cannot: capabilities.exclusive_create is False")
        for turn in range(3):
            path, ready = f"turn-{turn}", threading.Barrier(6)

            def creator(number: int, path: str = path, ready: threading.Barrier = ready) -> bool:
                ready.wait(60)
                try:
                    store.create(path, body(50_000, number))
                except AlreadyExists:
                    return False
                return True

            with ThreadPoolExecutor(6) as threads:
                won = list(threads.map(creator, range(6)))
            assert won.count(True) == 1
            assert store.read_bytes(path) == body(50_000, won.index(True))

    def test_readers_see_old_or_new(self, store: Store) -> None:
        if not store.capabilities.atomic_write:
            pytest.skip("this backend says that it cannot: capabilities.atomic_write is False")
        whole = {body(300_000, seed) for seed in range(3)}
        store.write_atomic("file", body(300_000, 0))
        ended = threading.Event()

        def reader() -> list[bytes]:
            seen = []
            while not ended.is_set():
                seen.append(store.read_bytes("file"))
            return seen

        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(reader) for _ in range(2)]
            try:
                for turn in range(12):
                    store.write_atomic("file", body(300_000, turn % 3))
            finally:
                ended.set()
            assert all(seen in whole for found in readers for seen in found.result())

    def test_check_says_that_all_is_well(self, store: Store) -> None:
        store.check()

    def test_it_can_be_used_again_after_closing(self, store: Store) -> None:
        store.write("file", b"x")
        store.backend.close()
        store.backend.close()
        assert store.read_bytes("file") == b"x"

    def test_threads_may_share_it(self, store: Store) -> None:
        def work(number: int) -> bool:
            path = f"thread/{number}"
            store.write(path, body(100_000, number))
            found = store.read_bytes(path) == body(100_000, number)
            store.move(path, f"moved/{number}")
            return found and store.info(f"moved/{number}").size == 100_000

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(work, range(24)))
        assert len(list(store.files("moved"))) == 24

    def test_errors_are_ours(self, store: Store) -> None:
        with pytest.raises(StorageError) as caught:
            store.read_bytes("missing")
        assert isinstance(caught.value, RedriveError)
        assert isinstance(store.capabilities.atomic_write, bool)
        assert FileInfo("a", 1) == FileInfo("a", 1)
