"""Paths: what is one, what is none, and that none leaves its root."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PathInvalid
from redrive.storage.path import LONGEST, all_listable, checked, folder, joined, listable, paths_among, problem
from redrive.testing.storage.sample import BAD, NAMES


@pytest.mark.parametrize("path", NAMES, ids=ascii)
def test_well_formed(path: str) -> None:
    assert problem(path) is None
    assert checked(path, backend="x") is path
    assert all(listable(part) for part in path.split("/"))


@pytest.mark.parametrize("path", BAD, ids=lambda path: ascii(path)[:30])
def test_no_path(path: str) -> None:
    with pytest.raises(PathInvalid) as caught:
        checked(path, backend="lake")
    assert caught.value.backend == "lake"
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "it is empty"),
        ("../a", "a path cannot leave its root"),
        ("a//b", "it contains //"),
        ("/a", "begins with /"),
        ("a/", "ends with /"),
        ("a\\b", "backslash"),
        ("a\x00b", "control character"),
        ("\ud800", "UTF-8"),
        ("x" * 1025, "1,025 bytes long"),
    ],
)
def test_what_is_wrong_is_said(path: str, said: str) -> None:
    assert said in (problem(path) or "")


def test_other_types() -> None:
    for wrong in (None, b"a", 1, ["a"]):
        with pytest.raises(TypeError, match="a path is text"):
            problem(wrong)  # type: ignore[arg-type]


@given(st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "", "a", "b c", "~", "\\", "%2e%2e"])).map("/".join))
@pytest.mark.req("S-12")
def test_no_path_leaves_its_root(path: str) -> None:
    try:
        checked(path, backend="x")
    except PathInvalid:
        return
    whole = posixpath.normpath(posixpath.join("/top", path))
    assert whole == f"/top/{path}"  # nothing to be put in order: each file has one path
    assert len(path.encode()) <= LONGEST


@given(st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from("./\\\n\x7f\ud800"), max_size=12)))
def test_a_folder_is_told_at_once_only_where_every_name_would_be(names: list[str]) -> None:
    assert not all_listable(names) or all(map(listable, names))


def test_names_that_are_listed() -> None:
    assert all_listable(["a", "b c", "日本語", "a.b", "x."])
    assert all_listable([])
    assert [all_listable([name, "a"]) for name in (".redrive-1", "back\\slash", "new\nline", "lone\udcff")] == [False] * 4
    assert [all_listable([name, "a"]) for name in ("/", "a/b", "/etc/passwd", "")] == [False] * 4
    assert listable(".hidden")
    assert not listable(".redrive-1")


def test_folders_and_roots() -> None:
    assert folder("", backend="x") == ""
    assert folder("a/b", backend="x") == "a/b"
    with pytest.raises(PathInvalid):
        folder("a/", backend="x")
    assert [joined("", "a"), joined("r", "a"), joined("r", ""), joined("", "")] == ["a", "r/a", "r", ""]


@given(st.lists(st.sampled_from([*NAMES, *BAD, "a", "a/b", "é" * 300, "x" * 256, "x" * 257]), max_size=8))
def test_of_a_listing_the_paths_are_kept(names: list[str]) -> None:
    """At once or one by one, the answer is the same."""
    assert paths_among(names) == [name for name in names if problem(name) is None]
