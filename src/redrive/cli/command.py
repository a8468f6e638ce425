"""Command: help as a reader needs it (summary, options, examples, exit codes), and old names of options."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand

F = TypeVar("F", bound=Callable[..., Any])
RENAMED = {"--quiet": "--heartbeat-timeout", "--error": "--reason", "--until-moment": "--until-time"}
"""Old names of options. Each still works in a command that has the new name and no option of the old name."""
WORDS = {
    r"^Input should be a valid integer\b.*": "must be a whole number, such as 42",
    r"^Input should be a valid number\b.*": "must be a number, such as 0.5",
    r"^Input should be greater than or equal to\b": "must be at least",
    r"^Input should be less than or equal to\b": "must be at most",
    r"^Input should be greater than\b": "must be more than",
    r"^Input should be less than\b": "must be less than",
    r"^Value error, ": "",
}
"""Messages of the validator inside Typer, and ours."""
_SECTION = re.compile(r"^(Examples|Exit codes):\n", re.MULTILINE)
_EXIT_CODE = re.compile(r"^\s*(\d+): (.+)$")


class Command(TyperCommand):
    """A command whose docstring has the sections `Examples:` and `Exit codes:`, which its help prints last."""

    def __init__(self, name: str | None, **given: Any) -> None:
        super().__init__(name, **given)
        parts = _SECTION.split(self.help or "")
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        self.help = parts[0].strip()
        self.examples = [line.strip() for line in sections.get("Examples", "").splitlines() if line.strip()]
        self.exit_codes = _exit_codes(sections.get("Exit codes", ""))

    @property
    def summary(self) -> str:
        """The first line: verb and object."""
        return " ".join((self.help or "").partition("\n\n")[0].split())

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] ID [ITEM]...`: brackets around what may be left out, and nothing around the rest."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                name = param.metavar or str(param.name).upper()
                pieces.append((name if param.required else f"[{name}]") + ("..." if param.nargs != 1 else ""))
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments and options, each with its default."""
        arguments, options = [], []
        for param in self.get_params(ctx):
            if getattr(param, "hidden", False):
                continue
            if param.param_type_name == "argument":
                arguments.append((param.metavar or str(param.name).upper(), described(param)))
            else:
                options.append((option_names(param, ctx), described(param)))
        for title, rows in (("Arguments", arguments), ("Options", options)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples as they are typed, and what each exit code means."""
        if self.examples:
            formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.examples))
        if self.exit_codes:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), means) for code, means in self.exit_codes.items()])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, with old names of options replaced. An option that takes one value may be passed once."""
        own = {name for param in self.get_params(ctx) for name in param.opts}
        replaced = {old: new for old, new in RENAMED.items() if new in own and old not in own}
        words = [_renamed(word, replaced) for word in args]
        if not ctx.resilient_parsing:
            self._check_values(ctx, words)
        try:
            return list(super().parse_args(ctx, words))
        except typer.BadParameter as wrong:
            wrong.message = in_our_words(wrong.message)
            raise

    def _check_values(self, ctx: Any, words: list[str]) -> None:
        """Reject repeated options and empty values, so that the command acts on no other selection.

        The parser would take the last value. An empty one comes from a shell variable that is not set.
        """
        parser: Any = self.make_parser(ctx)
        values, _, passed = parser.parse_args(args=list(words))
        for param in passed:
            value = values.get(param.name)
            if any(part == "" for part in (value if isinstance(value, (list, tuple)) else [value])):
                raise typer.BadParameter("empty value; leave it out, or check the shell variable", ctx=ctx, param=param)
        for param, times in Counter(passed).items():
            if times > 1 and param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count):
                raise typer.BadParameter(f"passed {times} times; pass it once", ctx=ctx, param=param)


class Commands(typer.Typer):
    """A group of commands of this form."""

    def __init__(self, *, help: str) -> None:  # noqa: A002  # as Typer names it
        super().__init__(no_args_is_help=True, help=help)

    def command(self, name: str | None = None, **given: Any) -> Callable[[F], F]:
        """Register a command."""
        registered: Callable[[F], F] = super().command(name, cls=Command, **given)
        return registered


def in_our_words(message: str, /) -> str:
    """What is wrong with a value, where Typer uses the words of its validator."""
    for pattern, words in WORDS.items():
        message = re.sub(pattern, words, message)
    return message


def described(param: Any, /) -> str:
    """The help of an argument or option, with its default or that it is required."""
    said = (param.help or "").strip()
    default = int(param.default) if isinstance(param.default, float) and param.default.is_integer() else param.default
    if param.param_type_name == "option" and param.required:
        return f"{said} (required)"
    if param.show_default and default is not None and not isinstance(default, bool) and not callable(default):
        return f"{said} (default: {default})"
    return said


def option_names(param: Any, ctx: Any, /) -> str:
    """`--follow, -f`, `--limit N`, `--order [newest|oldest]`."""
    names = ", ".join(sorted(param.opts, key=lambda name: (len(name) == 2, name)))
    return names if param.is_flag else f"{names} {param.display_type_rich(ctx=ctx)}"


def _exit_codes(text: str) -> dict[int, str]:
    found: dict[int, str] = {}
    for line in text.splitlines():
        matched = _EXIT_CODE.match(line)
        if matched:
            found[int(matched[1])] = matched[2]
        elif line.strip():
            found[max(found)] += f" {line.strip()}"  # a long line goes on
    return found


def _renamed(word: str, replaced: dict[str, str]) -> str:
    name, equals, value = word.partition("=")
    return f"{replaced[name]}{equals}{value}" if name in replaced else word
