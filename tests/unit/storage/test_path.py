"""Paths: valid and invalid ones, and filters for listings."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PathInvalid
from redrive.storage.path import (
    MAX_PATH_BYTES,
    are_plain_names,
    check_folder,
    check_path,
    is_valid_name,
    join_path,
    path_problem,
    valid_paths,
)
from redrive.testing.storage import INVALID_PATHS, VALID_PATHS


@pytest.mark.parametrize("path", VALID_PATHS, ids=ascii)
def test_a_valid_path_is_accepted(path: str) -> None:
    assert path_problem(path) is None
    assert check_path(path, backend="x") is path
    assert all(is_valid_name(part) for part in path.split("/"))


@pytest.mark.parametrize("path", INVALID_PATHS, ids=lambda path: ascii(path)[:30])
def test_an_invalid_path_is_rejected_with_a_short_message(path: str) -> None:
    with pytest.raises(PathInvalid) as caught:
        check_path(path, backend="lake")
    assert caught.value.backend == "lake"
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("path", "problem"),
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
def test_the_problem_is_named(path: str, problem: str) -> None:
    assert problem in (path_problem(path) or "")


def test_other_types_are_rejected() -> None:
    for wrong in (None, b"a", 1, ["a"]):
        with pytest.raises(TypeError, match="a path is text"):
            path_problem(wrong)  # type: ignore[arg-type]


@given(st.text(max_size=60) | st.lists(st.sampled_from(["..", ".", "", "a", "b c", "~", "\\", "%2e%2e"])).map("/".join))
@pytest.mark.req("S-12")
def test_no_path_leaves_its_root(path: str) -> None:
    try:
        check_path(path, backend="x")
    except PathInvalid:
        return
    whole = posixpath.normpath(posixpath.join("/top", path))
    assert whole == f"/top/{path}"  # Already normal: each file has exactly one path.
    assert len(path.encode()) <= MAX_PATH_BYTES


@given(st.lists(st.text(st.characters(codec="utf-8") | st.sampled_from("./\\\n\x7f\ud800"), max_size=12)))
def test_plain_names_are_valid(names: list[str]) -> None:
    assert not are_plain_names(names) or all(map(is_valid_name, names))


def test_plain_names_have_no_special_characters() -> None:
    assert are_plain_names(["a", "b c", "日本語", "a.b", "x."])
    assert are_plain_names([])
    assert [are_plain_names([name, "a"]) for name in (".redrive-1", "back\\slash", "new\nline", "lone\udcff")] == [False] * 4
    assert [are_plain_names([name, "a"]) for name in ("/", "a/b", "/etc/passwd", "")] == [False] * 4
    assert is_valid_name(".hidden")
    assert not is_valid_name(".redrive-1")


def test_folders_and_roots() -> None:
    assert check_folder("", backend="x") == ""
    assert check_folder("a/b", backend="x") == "a/b"
    with pytest.raises(PathInvalid):
        check_folder("a/", backend="x")
    assert [join_path("", "a"), join_path("r", "a"), join_path("r", ""), join_path("", "")] == ["a", "r/a", "r", ""]


@given(st.lists(st.sampled_from([*VALID_PATHS, *INVALID_PATHS, "a", "a/b", "é" * 300, "x" * 256, "x" * 257]), max_size=8))
def test_valid_paths_equals_a_check_of_each_path(names: list[str]) -> None:
    """The check of all paths together has the same result."""
    assert valid_paths(names) == [name for name in names if path_problem(name) is None]
