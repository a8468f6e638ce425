"""Tests of listing, describing, deleting, moving and copying files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from ...errors import AlreadyExists, NotFound
from ...storage import Store, transfer
from ...storage.memory import Memory
from .samples import LARGE_BYTES, sample_bytes


class ListingTests:
    """List, describe, delete, move and copy files."""

    def test_a_new_store_is_empty(self, store: Store) -> None:
        assert list(store.files()) == []
        assert list(store.folders()) == []
        assert list(store.files("missing/folder")) == []
        assert list(store.folders("missing/folder")) == []
        assert not store.exists("file")

    @pytest.mark.parametrize("operation", ["read", "read_bytes", "info", "move", "copy"])
    def test_a_missing_file_raises_not_found(self, store: Store, operation: str) -> None:
        store.write("folder/file", b"x")
        for path in ("missing", "folder/missing", "missing/missing"):
            with pytest.raises(NotFound) as caught:
                arguments = ["other"] if operation in ("move", "copy") else []
                getattr(store, operation)(path, *arguments)
            assert caught.value.path.endswith(path)
            assert caught.value.backend == store.backend.name
            assert path in str(caught.value)
        assert list(store.files()) == ["folder/file"]

    def test_a_folder_is_not_a_file(self, store: Store) -> None:
        store.write("folder/file", b"x")
        assert not store.exists("folder")
        for operation in (store.info, store.read_bytes):
            with pytest.raises(NotFound):
                operation("folder")
        with pytest.raises(NotFound):
            store.read("folder").read()

    def test_info_has_size_time_and_etag(self, store: Store) -> None:
        store.write("a/file", sample_bytes(12_345))
        info = store.info("a/file")
        assert (info.path, info.size) == ("a/file", 12_345)
        assert info.modified_at is None or info.modified_at.tzinfo is not None
        assert [file.path for file in store.list()] == ["a/file"]
        assert [file.size for file in store.list()] == [12_345]
        if info.etag is not None:
            store.write("a/file", sample_bytes(12_345, 1))
            assert store.info("a/file").etag != info.etag

    def test_files_and_folders_are_listed(self, store: Store) -> None:
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

    def test_a_listing_continues_after_a_page(self, store: Store) -> None:
        paths = [f"many/{number:04}" for number in range(250)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda path: store.write(path, b"x"), paths))
        assert sorted(store.files("many")) == paths

    def test_delete_ignores_a_missing_file(self, store: Store) -> None:
        store.write("a/1", b"x")
        store.write("a/2", b"x")
        store.delete("a/1")
        assert list(store.files()) == ["a/2"]
        store.delete("a/1")
        store.delete("never/there")
        assert not store.exists("a/1")

    @pytest.mark.parametrize("operation", ["move", "copy"])
    @pytest.mark.parametrize("size", [0, LARGE_BYTES])
    def test_move_and_copy_replace_the_target(
        self, store: Store, operation: str, size: int
    ) -> None:
        store.write("a/source", sample_bytes(size))
        store.write("there", b"old")
        for target in ("there", "new/folder/target"):
            getattr(store, operation)("a/source", target)
            assert store.read_bytes(target) == sample_bytes(size)
            assert store.exists("a/source") == (operation == "copy")
            if operation == "move":
                store.move(target, "a/source")
        getattr(store, operation)("a/source", "a/source")
        assert store.read_bytes("a/source") == sample_bytes(size)

    def test_a_copy_does_not_change_with_its_source(self, store: Store) -> None:
        store.write("source", b"old")
        store.copy("source", "target")
        store.write("source", b"new")
        assert store.read_bytes("target") == b"old"

    def test_transfer_to_another_store_and_back(self, store: Store) -> None:
        other = Store(Memory())
        store.write("a/file", sample_bytes(LARGE_BYTES))
        moved: list[int] = []
        transfer(store, "a/file", other, "b", progress=moved.append)
        assert sum(moved) == LARGE_BYTES
        transfer(other, "b", store, "back", how="create")
        assert store.read_bytes("back") == sample_bytes(LARGE_BYTES)
        with pytest.raises(AlreadyExists):
            transfer(other, "b", store, "back", how="create")
        with pytest.raises(NotFound):
            transfer(other, "missing", store, "file")
        assert sorted(store.files()) == ["a/file", "back"]
