"""Libraries, and the ways to use them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]
Kind = Literal["sync", "async"]


@dataclass(frozen=True)
class Form:
    """One way to use a library, always with 3 attempts, no wait, and retries of `ValueError`."""

    name: str
    wrap: Wrap
    limit: bool = False
    """Has a time limit. Such forms are not compared for the overhead of a retry."""
    bounded: bool = True
    """Gives up after three attempts. If False, it has only a time limit, and failing calls are not measured."""
    retries: bool = True
    """Retries. False for floors that measure only one ingredient."""
    nest: Wrap | None = None
    """Wraps nested layers, if the library raises its own error. It also retries that error."""


@dataclass(frozen=True)
class Library:
    """Forms of a library for sync and async functions."""

    name: str
    module: str = ""
    """Module for the measurement of a cold import."""
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
        return f"{self.library}, {self.form.name}"


@dataclass
class Libraries:
    """The loaded libraries, and the reasons why others are absent."""

    loaded: list[Library] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, load: Callable[[], Library]) -> None:
        """Add a library. If it cannot be loaded, the reason is recorded and the run continues."""
        try:
            self.loaded.append(load())
        except ModuleNotFoundError as error:
            self.absent[name] = f"not installed ({error})"
        except Exception as error:
            self.absent[name] = f"{type(error).__name__}: {error}"

    def candidates(self, kind: Kind) -> list[Candidate]:
        return [Candidate(library.name, form) for library in self.loaded for form in library.forms(kind)]


def release(name: str) -> str:
    """Return the installed version of a distribution, or an empty string."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
