"""The query parameters of lists, each declared once for the page and for the REST API.

FastAPI reads them from the query of an API request, and `View.read_query` from the query of a page.
Bodies of actions extend them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime
from typing import Annotated, Any, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ..ops import JobFilter
from ..ops.dead_letters.model import DeadLetterFilter
from ..ops.partitions.selection import PartitionFilter, Standing, parse_day, select_partitions
from ..ops.render import moment
from ..ops.search import dead_letters_only

ListQueryT = TypeVar("ListQueryT", bound="ListQuery")


def check_text(text: str) -> str:
    """Return the text. ValueError: it contains NUL, which Postgres cannot store."""
    if "\0" in text:
        raise ValueError("invalid text: it contains a NUL character")
    return text


def _read_time(value: Any) -> Any:
    return moment(value) if isinstance(value, str) else value


def _read_day(value: Any, info: ValidationInfo) -> Any:
    return parse_day(info.field_name or "day", value) if isinstance(value, str) else value


Text: TypeAlias = Annotated[
    str | None,
    Field(max_length=2000),
    AfterValidator(lambda text: None if text is None else check_text(text)),
]
Since: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(_read_time),
    Field(description="Not older than this: a timestamp, or a duration such as 30min, 12h or 7d."),
]
Until: TypeAlias = Annotated[
    datetime | None,
    BeforeValidator(_read_time),
    Field(description="Older than this, in the same forms as `since`."),
]
Search: TypeAlias = Annotated[
    Text, Field(description="Words of a search, such as `type:crm.sync state:dead since:2h`.")
]
Limit: TypeAlias = Annotated[int, Field(ge=1, le=1000, description="Maximum number.")]
FirstDay: TypeAlias = Annotated[
    date | None, BeforeValidator(_read_day), Field(description="First day.")
]
LastDay: TypeAlias = Annotated[
    date | None, BeforeValidator(_read_day), Field(description="Last day, inclusive.")
]
StoredStatus: TypeAlias = Literal["pending", "replaying", "replayed", "discarded"]
LetterStatus: TypeAlias = Literal["pending", "replaying", "replayed", "discarded", "all"]
JobState: TypeAlias = Literal[
    "queued",
    "waiting",
    "retry_wait",
    "replaying",
    "running",
    "blocked",
    "dlq",
    "done",
    "cancelled",
    "discarded",
]
KeyStatus: TypeAlias = Literal["processing", "completed", "failed", "abandoned"]
RecordType: TypeAlias = Literal[
    "submitted", "failed", "lost", "returned", "done", "dead", "rejected", "decided"
]


class Parameters(BaseModel):
    """The parameters of a request. Unknown parameters are ignored."""

    @classmethod
    def read(cls, fields: Mapping[str, str], /) -> Self:
        """Read the parameters from a query or a form. Blank fields are not set.

        Raises:
            ValueError: A field is invalid.
        """
        try:
            return cls.model_validate(cls._set_fields(fields))
        except ValidationError as error:
            raise ValueError(_describe(error)) from None

    @classmethod
    def read_valid(cls, fields: Mapping[str, str], /) -> tuple[Self, str | None]:
        """Read the valid parameters. Returns also the problems of the others."""
        filled = cls._set_fields(fields)
        try:
            return cls.model_validate(filled), None
        except ValidationError as error:
            places = {place for problem in error.errors() for place in problem["loc"]}
            invalid = places or filled.keys()  # a problem of the whole query has no place
            valid = {name: text for name, text in filled.items() if name not in invalid}
            return cls.read_valid(valid)[0], _describe(error)

    @classmethod
    def _set_fields(cls, fields: Mapping[str, str]) -> dict[str, str]:
        texts = {name: fields.get(name, "").strip() for name in cls.model_fields}
        return {name: text for name, text in texts.items() if text}


def _describe(error: ValidationError) -> str:
    """Return the problems in one line."""
    return "; ".join(map(_describe_problem, error.errors()))


def _describe_problem(problem: Mapping[str, Any]) -> str:
    name, context = ".".join(map(str, problem["loc"])), problem.get("ctx", {})
    if problem["type"] == "value_error":
        return str(context["error"])  # our own messages name the field
    if problem["type"] == "literal_error":
        expected = context["expected"].replace("'", "")
        return f"invalid {name} {problem['input']!r}: use {expected}"
    return f"{name}: {problem['msg']}"


class TimeRange(Parameters):
    """A range of time."""

    since: Since = None
    until: Until = None

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.since is not None and self.until is not None and self.until <= self.since:
            raise ValueError(f"invalid until {self.until:%Y-%m-%dT%H:%M}: it is not after since")
        return self


class ListQuery(Parameters):
    """The parameters of a list."""

    limit: Limit = 100


class DeadLetterQuery(TimeRange):
    """Dead letters by words, job type, error and reason."""

    q: Search = None
    kind: Text = None
    error: Text = None
    reason: Text = None

    def to_filter(self, parse: Callable[[str], JobFilter], /, **options: Any) -> DeadLetterFilter:
        """Return the filter of the operator, with further options such as `ids` and `limit`.

        `parse` reads the words of the search.

        Raises:
            ValueError: A word is invalid, or a field has two values.
        """
        named = DeadLetterFilter(
            kind=self.kind,
            error=self.error,
            reason=self.reason,
            since=self.since,
            until=self.until,
            **options,
        )
        return named if self.q is None else named.narrowed(dead_letters_only(parse(self.q)))


class DeadLetterListQuery(DeadLetterQuery, ListQuery):
    """Dead letters in one status, or in all."""

    status: LetterStatus = "pending"

    @property
    def stored_status(self) -> StoredStatus | None:
        """The stored status. None: all."""
        return None if self.status == "all" else self.status


class FailureQuery(TimeRange, ListQuery):
    """Error groups of jobs."""

    kind: Text = None


class ActivityQuery(TimeRange):
    """A range of time, of the whole app or of one job type."""

    kind: Text = None


class RejectionQuery(TimeRange, ListQuery):
    """Error groups of partitions."""

    dataset: Text = None


class AuditQuery(TimeRange, ListQuery):
    """Entries of the audit log."""

    by: Text = None
    action: Text = None


class JournalQuery(ListQuery):
    """Log records."""

    kind: Text = None
    event: RecordType | None = None
    since: Since = None
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number.")] = 100


class BatchItemQuery(ListQuery):
    """Given-up items of batches."""

    batch: Text = None
    reason: Text = None
    since: Since = None


class EventQuery(ListQuery):
    """Received events."""

    source: Text = None
    type: Text = None


class SearchQuery(ListQuery):
    """Words of a search."""

    q: Search = None


class JobQuery(ListQuery):
    """Jobs."""

    q: Search = None
    state: JobState | None = None
    kind: Text = None

    def to_filter(self, parse: Callable[[str], JobFilter], /) -> JobFilter:
        """Return the filter of the operator. `parse` reads the words of the search."""
        words = JobFilter() if self.q is None else parse(self.q)
        named: dict[str, Any] = {"state": self.state, "kind": self.kind}
        return replace(words, **{name: value for name, value in named.items() if value is not None})


class KeyQuery(ListQuery):
    """Idempotency records."""

    domain: Text = None
    user: Text = None
    status: KeyStatus | None = None
    abandoned: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the operator. The status `abandoned` is not stored."""
        if self.status != "abandoned":
            return dict(self)
        return {**dict(self), "status": None, "abandoned": True}


class CalendarQuery(Parameters):
    """Days of datasets."""

    source: Text = None
    query: Text = None
    since: FirstDay = None
    until: LastDay = None


class CustomerQuery(CalendarQuery):
    """Customers of a dataset by day."""

    after: Text = None
    limit: Annotated[int, Field(ge=1, le=200, description="Maximum number of customers.")] = 50


class PartitionQuery(CalendarQuery, ListQuery):
    """Partitions."""

    customer: Text = None
    status: Standing | None = None
    error: Text = None

    def select(self) -> PartitionFilter:
        """Return the selection of partitions. ValueError: it is invalid."""
        return select_partitions(
            source=self.source,
            query=self.query,
            customers=() if self.customer is None else (self.customer,),
            since=self.since,
            until=self.until,
            status=self.status,
            error=self.error,
        )
