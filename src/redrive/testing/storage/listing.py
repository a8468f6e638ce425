"""Listing: what is there, and what was moved, copied or deleted."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import AlreadyExists, NotFound
from ...storage import Store, transfer
from ...storage.memory import Memory
from .sample import BIG, body


class Listing:
    """Listed, described, deleted, moved, copied."""

    def test_nothing_is_there_at_first(self, store: Store) -> None:
        assert list(store.files()) == []
        assert list(store.folders()) == []
        assert list(store.files("missing/folder")) == []
        assert list(store.folders("missing/folder")) == []
        assert not store.exists("file")

    @pytest.mark.parametrize("act", ["read", "read_bytes", "info", "move", "copy"])
    def test_a_missing_file(self, store: Store, act: str) -> None:
        store.write("folder/file", b"x")
        for path in ("missing", "folder/missing", "missing/missing"):
            with pytest.raises(NotFound) as caught:
                getattr(store, act)(path, *(["other"] if act in ("move", "copy") else []))
            assert caught.value.path.endswith(path)
            assert caught.value.backend == store.backend.name
            assert path in str(caught.value)
        assert list(store.files()) == ["folder/file"]

    def test_a_folder_is_no_file(self, store: Store) -> None:
        store.write("folder/file", b"x")
        assert not store.exists("folder")
        for act in (store.info, store.read_bytes):
            with pytest.raises(NotFound):
                act("folder")
        with pytest.raises(NotFound):
            store.read("folder").read()

    def test_info(self, store: Store) -> None:
        store.write("a/file", body(12_345))
        info = store.info("a/file")
        assert (info.path, info.size) == ("a/file", 12_345)
        assert info.modified_at is None or info.modified_at.tzinfo is not None
        assert [each.path for each in store.list()] == ["a/file"]
        assert [each.size for each in store.list()] == [12_345]
        if info.etag is not None:
            store.write("a/file", body(12_345, 1))
            assert store.info("a/file").etag != info.etag

    def test_listing(self, store: Store) -> None:
        paths = ["a", "b/1", "b/2", "b/c/3", "b-c/4", "bb/5", "d/e/f/6"]
        for path in paths:
            store.write(path, path.encode())
        assert sorted(store.files()) == sorted(paths)
        assert sorted(store.files(recursive=False)) == ["a"]
        assert sorted(store.folders()) == ["b", "b-c", "bb", "d"]
        assert sorted(store.files("b")) == ["b/1", "b/2", "b/c/3"]
        assert sorted(store.files("b", recursive=False)) == ["b/1", "b/2"]
        assert sorted(store.folders("b")) == ["b/c"]
        assert sorted(store.folders("d")) == ["d/e"]
        assert sorted(store.files("d/e/f")) == ["d/e/f/6"]
        assert list(store.folders("d/e/f")) == []
        assert list(store.files("a")) == []

    def test_a_listing_has_no_end_of_page(self, store: Store) -> None:
        paths = [f"many/{number:04}" for number in range(250)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda path: store.write(path, b"x"), paths))
        assert sorted(store.files("many")) == paths

    def test_delete(self, store: Store) -> None:
        store.write("a/1", b"x")
        store.write("a/2", b"x")
        store.delete("a/1")
        assert list(store.files()) == ["a/2"]
        store.delete("a/1")
        store.delete("never/there")
        assert not store.exists("a/1")

    @pytest.mark.parametrize("act", ["move", "copy"])
    @pytest.mark.parametrize("size", [0, BIG])
    def test_move_and_copy(self, store: Store, act: str, size: int) -> None:
        store.write("a/source", body(size))
        store.write("there", b"old")
        for target in ("there", "new/folder/target"):
            getattr(store, act)("a/source", target)
            assert store.read_bytes(target) == body(size)
            assert store.exists("a/source") == (act == "copy")
            if act == "move":
                store.move(target, "a/source")
        getattr(store, act)("a/source", "a/source")
        assert store.read_bytes("a/source") == body(size)

    def test_a_copy_is_a_file_of_its_own(self, store: Store) -> None:
        store.write("source", b"one")
        store.copy("source", "target")
        store.write("source", b"two")
        assert store.read_bytes("target") == b"one"

    def test_to_another_store_and_back(self, store: Store) -> None:
        other = Store(Memory())
        store.write("a/file", body(BIG))
        moved: list[int] = []
        transfer(store, "a/file", other, "b", progress=moved.append)
        assert sum(moved) == BIG
        transfer(other, "b", store, "back", how="create")
        assert store.read_bytes("back") == body(BIG)
        with pytest.raises(AlreadyExists):
            transfer(other, "b", store, "back", how="create")
        with pytest.raises(NotFound):
            transfer(other, "missing", store, "file")
        assert sorted(store.files()) == ["a/file", "back"]
