"""One way of calling a function again, and the library it comes from."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]
Kind = Literal["sync", "async"]


@dataclass(frozen=True)
class Form:
    """One way of using a library. Alike for all: 3 attempts, no wait, `ValueError` is tried again."""

    name: str
    wrap: Wrap
    limit: bool = False
    """With a time limit for an attempt; left out where only the machinery of a retry counts."""
    bounded: bool = True
    """Gives up after three attempts; False: it can only be bounded in time, so no failing call is measured."""
    retries: bool = True
    """Tries again at all; False for floors that only show what one ingredient costs."""
    nest: Wrap | None = None
    """For layers around each other, where a library gives up with an error of its own: told to retry that too."""


@dataclass(frozen=True)
class Library:
    """What one library offers for plain and for async functions."""

    name: str
    module: str = ""
    """What a cold import imports."""
    sync: tuple[Form, ...] = ()
    async_: tuple[Form, ...] = ()

    def forms(self, kind: Kind) -> tuple[Form, ...]:
        return self.sync if kind == "sync" else self.async_


@dataclass(frozen=True)
class Candidate:
    """A form of a library, as a row of a table."""

    library: str
    form: Form

    @property
    def label(self) -> str:
        return f"{self.library}: {self.form.name}"


@dataclass
class Field:
    """All that can be measured here, and what cannot and why."""

    libraries: list[Library] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def enter(self, name: str, load: Callable[[], Library]) -> None:
        """Add a library; one that cannot be imported or set up is written down instead of ending the run."""
        try:
            self.libraries.append(load())
        except ModuleNotFoundError as error:
            self.absent[name] = f"not installed ({error})"
        except Exception as error:
            self.absent[name] = f"{type(error).__name__}: {error}"

    def candidates(self, kind: Kind) -> list[Candidate]:
        return [Candidate(library.name, form) for library in self.libraries for form in library.forms(kind)]


def release(name: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
