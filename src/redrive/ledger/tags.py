"""Tags: values by which a job is found. Free of SQLAlchemy.

The tags of a job are the arguments that its command declares as searchable, and its correlation
ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..core.context import MAX_NAME_CHARS, shorten_id

if TYPE_CHECKING:
    from .model import NewJob

CORRELATION = "@id"
"""Name of the tags that hold correlation ids."""
USER = "@user"
"""Name of the tag that holds the correlation id `user_id`."""
UNSEARCHED_IDS = frozenset(("traceparent", "source", "event_type", "actor_type"))
"""Correlation ids that do not identify work. A traceparent has its trace in `trace_id`."""
MAX_TAGS = 20
"""Tags that a command may declare."""


def tag_text(value: str, /) -> str:
    """Return a value as it is stored and searched. A long one is shortened, as an id is."""
    return shorten_id(value).replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


def check_tags(tags: Mapping[str, str], /) -> None:
    """Reject tags that cannot be stored.

    Raises:
        TypeError: A name or a value is not text.
        ValueError: There are too many, or a name is not valid.
    """
    if len(tags) > MAX_TAGS:
        raise ValueError(f"tags: {len(tags)} at once; use at most {MAX_TAGS}")
    for name, value in tags.items():
        if not isinstance(name, str) or not isinstance(value, str):
            kind = type(value).__name__
            raise TypeError(f"tags must be a mapping of text to text: {name!r:.60} is {kind}")
        check_tag_name(name)


def check_tag_name(name: str, /) -> None:
    """Reject a name that cannot be written as a word of a search."""
    parts = name.split(".")
    if len(name) > MAX_NAME_CHARS or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"tags: invalid name {name!r:.60}; use the name of a parameter, such as 'order_id', "
            "or of its attribute, such as 'order.id'"
        )


def stored_name(name: str, /) -> str:
    """Return the name under which a declared tag is stored. `user` is found as every user is."""
    return USER if name == "user" else name


def tags_of(job: NewJob, /) -> set[tuple[str, str]]:
    """Return the names and values of the tags of a new job."""
    tags = {(stored_name(name), tag_text(value)) for name, value in (job.tags or {}).items()}
    if job.ids:
        tags.update(id_tags(job.ids))
    return tags


def id_tags(ids: Mapping[str, str], /) -> Iterator[tuple[str, str]]:
    """Yield the tags of correlation ids."""
    for name, value in ids.items():
        if name not in UNSEARCHED_IDS and value:
            yield USER if name == "user_id" else CORRELATION, tag_text(value)
