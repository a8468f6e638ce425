"""Shapes in which programs write secrets: command lines, XML, pairs of name and value, messages of databases, known tokens.

Each pattern reads a text once, whatever the text is: `tests/unit/journal/test_redaction.py` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .secret_names import is_secret

HIDDEN = "[redacted]"
Span: TypeAlias = tuple[int, int]

_BEGIN = r"(?:\b|(?<=%[0-9A-Fa-f]{2}))"
"""Of a token: also behind a character that is escaped in an address."""
KNOWN = re.compile(
    r"""
    {B}eyJ[\w-]{5,}\.[\w-]*(?:\.[\w-]*)?                                       # a JSON Web Token
    | {B}(?:sk|pk|rk)[-_][\w-]{16,}                                            # payment and LLM services
    | (?:gh[pousr]|glpat|github_pat|glsa|xox[a-z])[-_][\w-]{10,} # code hosts, chat
    | {B}xapp-[\w-]{10,} | hooks\.slack\.com/services/[\w/]{20,}
    | (?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{16}                           # AWS
    | AIza[\w-]{30,} | {B}ya29\.[\w-]{10,} | {B}GOCSPX-[\w-]{10,}               # Google
    | {B}whsec_[\w+/=]{10,} | {B}sq0[a-z]{3}-[\w-]{10,} | {B}shp(?:at|ss|ca|pa)_[\w]{10,}
    | {B}npm_[A-Za-z0-9]{20,} | {B}pypi-[\w-]{20,} | {B}dckr_pat_[\w-]{10,} | {B}rubygems_[0-9a-f]{20,}
    | {B}SG\.[\w-]{10,}\.[\w-]{10,} | {B}key-[0-9a-f]{32}\b | {B}SK[0-9a-f]{32}\b  # mail, SMS
    | {B}(?:dop|doo|dor)_v1_[0-9a-f]{20,} | {B}hf_[A-Za-z0-9]{20,} | {B}gsk_\w{20,} | {B}xai-\w{20,} | {B}r8_\w{20,}
    | {B}dapi[0-9a-f]{32} | {B}hv[sbr]\.[\w-]{20,} | {B}sntry[su]_[\w+/=-]{20,} | {B}lin_api_\w{20,} | {B}AGE-SECRET-KEY-1\w{20,}
    | {B}\d{8,10}:AA[\w-]{30,}                                                 # Telegram
    | -----BEGIN[ ][A-Z0-9 ]*PRIVATE[ ]KEY(?:[ ]BLOCK)?-----.*?(?:-----END[ ][A-Z0-9 ]*-----|\Z)
    """.replace("{B}", _BEGIN),
    re.VERBOSE | re.DOTALL,
)
"""Tokens that are known by sight."""
_MARKS = tuple(
    """eyJ sk- sk_ pk- pk_ rk- rk_ ghp_ gho_ ghu_ ghs_ ghr_ glpat glsa github_pat xox xapp- hooks.slack AKIA ASIA AROA AIDA ABIA
    ACCA AIza ya29 GOCSPX whsec_ sq0 shp npm_ pypi- dckr_ rubygems SG. key- SK _v1_ hf_ gsk_ xai- r8_ dapi hvs. hvb. hvr. sntry
    lin_api AGE- :AA -----B""".split()
)
"""Some part of every token above: looking for them takes less time than the pattern."""
_SHORTEST = 9


def without_known_tokens(text: str, /) -> str:
    """The text without tokens that are known by sight."""
    if len(text) >= _SHORTEST:
        for mark in _MARKS:
            if mark in text:
                return KNOWN.sub(HIDDEN, text)
    return text


# ---- messages of databases and of pydantic, and short options: the values in them have no names ----

_PYDANTIC = re.compile(r"(input_value=)(?:(?!, input_type=)[^\n])*")
_PARAMETERS = re.compile(r"(\[parameters: ).*?(?=\](?:\n\(Background|\Z)|\Z)", re.DOTALL)
_FAILING_ROW = re.compile(r"(Failing row contains \()[^\n]*")
_NUMBERED = re.compile(r"(\$\d{1,5} = )'(?:[^'\n]|'')*+'?")
_KEY_DETAIL = re.compile(
    r"Key \((?P<columns>[^=\n]*)\)=\((?P<value>[^\n]*?)(?=\) (?:already|is |conflicts|exists)|\)?$)", re.MULTILINE
)
_DUPLICATE = re.compile(r"Duplicate entry '(?P<value>[^\n]*?)' for key '(?P<columns>[^'\n]*)'")


_SHORT_FLAG = re.compile(
    r"""\b(?:mysql\w*|mariadb[\w-]*|sshpass|mongo\w*|redis-cli|mysqladmin)\b[^\n|;]{0,200}?[\s"']-[pa](?:["'],[ ]*["']|\s+)?"""
    r"""(?P<value>(?!\[redacted\])[^\s"',\]]+)"""
)
_CURL_USER = re.compile(
    r"""(?<![\w-])(?:-u|--user|--proxy-user)(?:["'],)?[\s=]*["']?[^\s:"'=]{1,100}:(?P<value>(?!\[redacted\])[^\s"']+)"""
)
_CLIENTS = ("mysql", "mariadb", "sshpass", "mongo", "redis-cli")


def without_nameless(text: str, /) -> str:
    """The text without values that come without a name."""
    if "input_value=" in text:
        text = _PYDANTIC.sub(rf"\1{HIDDEN}", text)
    if "[parameters: " in text:
        text = _PARAMETERS.sub(rf"\1{HIDDEN}", text)
    if "Failing row contains (" in text:
        text = _FAILING_ROW.sub(rf"\1{HIDDEN}).", text)
    if "$" in text:
        text = _NUMBERED.sub(rf"\1{HIDDEN}", text)
    if "Key (" in text:
        text = _replaced(text, _detail_spans(_KEY_DETAIL, text))
    if "Duplicate entry '" in text:
        text = _replaced(text, _detail_spans(_DUPLICATE, text))
    if " -" in text or "-u" in text or "'-" in text or '"-' in text:
        if any(client in text for client in _CLIENTS):
            text = _replaced(text, (found.span("value") for found in _SHORT_FLAG.finditer(text)))
        if "-u" in text or "-user" in text:
            text = _replaced(text, (found.span("value") for found in _CURL_USER.finditer(text)))
    return text


def _detail_spans(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if any(is_secret(column) for column in re.findall(r"[\w-]+", found["columns"])):
            yield found.span("value")


# ---- command lines ----

_FLAG = re.compile(r"""(?<![\w-])(?P<flag>--?[A-Za-z][\w.-]*)[ \t]+(?=[^\s-]|-[^\s-]*\d)""")
_ONE_WORD = re.compile(r"""(?P<quote>["'])(?:(?!(?P=quote)).)*+(?P=quote)?|[^\s"']+""", re.DOTALL)


def _flag_spans(text: str) -> Iterator[Span]:
    for found in _FLAG.finditer(text):
        if is_secret(found["flag"]):
            value = _ONE_WORD.match(text, found.end())
            if value is not None:
                yield value.span()


# ---- XML ----

_TAG = re.compile(
    r"""(?:<|&lt;)(?P<tag>[A-Za-z][\w:.-]*)(?P<attributes>(?:\s[^<>&]*)?)(?:(?<!/)>|&gt;)(?=[^<]|<!\[CDATA)""", re.DOTALL
)
_NAMED = re.compile(r"""(?i:\b(?:name|key|id)\s*=\s*["'])(?P<name>[^"'<>]{1,100})""")


def _xml_spans(text: str) -> Iterator[Span]:
    done = 0
    for found in _TAG.finditer(text):
        if found.start() < done:
            continue
        named = _NAMED.search(found["attributes"]) if found["attributes"] else None
        if is_secret(found["tag"].rpartition(":")[2]) or (named is not None and is_secret(named["name"])):
            ends = [end for close in ("</", "&lt;/") if (end := text.find(close + found["tag"], found.end())) >= 0]
            done = min(ends, default=len(text))
            yield found.end(), done


# ---- pairs of a name and a value: {"name": "password", "value": "..."}, <add key="password" value="..."/> ----

NAME_KEYS = frozenset("name key field header parameter parameterkey parametername variable option label k attribute".split())
VALUE_KEYS = frozenset("value val values v parametervalue stringvalue defaultvalue".split())
_Q = r"""\\{0,8}["']"""
_NAMES = r"(?i:name|key|field|header|parameter|parameterKey|parameterName|variable|option|label|attribute)"
_VALUES = r"(?i:value|values|val|parameterValue|stringValue|defaultValue)"
_QUOTED = r"""(?P<quote>\\{0,8}["'])(?:(?!(?P=quote)).)*+"""
_NAME_FIRST = re.compile(
    rf"""\b{_NAMES}(?:{_Q})?\s*[:=]\s*(?:{_Q})?(?P<name>[\w .:-]{{1,100}}?)(?:{_Q})?\s*[,;&\s]\s*"""
    rf"""(?:{_Q})?\b{_VALUES}(?:{_Q})?\s*[:=]\s*"""
    rf"""(?P<value>{_QUOTED}(?P=quote)?|(?!\[redacted\])[^\s,;&}}>]+)""",
    re.DOTALL,
)
_VALUE_FIRST = re.compile(
    rf"""\b{_VALUES}(?:{_Q})?\s*[:=]\s*(?P<value>{_QUOTED}(?P=quote))\s*[,;&\s]\s*(?:{_Q})?{_NAMES}(?:{_Q})?\s*[:=]\s*(?:{_Q})?"""
    rf"""(?P<name>[\w.:-]{{1,100}})""",
    re.DOTALL,
)
_FORM_DATA = re.compile(
    r"""form-data;[^\n]{0,100}?\bname=["']?(?P<name>[\w.\[\]-]{1,100})["']?[^\n]{0,200}\r?\n(?:[^\n]{1,200}\n){0,5}?\r?\n(?P<value>[^\r\n]+)"""
)


def _pair_spans(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Span]]:
    def spans(text: str) -> Iterator[Span]:
        for found in pattern.finditer(text):
            if is_secret(found["name"]):
                yield found.span("value")

    return spans


_FLAGS = (" -", "'-", '"-')
_VALUE_MARKS = (
    'alue"',
    "alue'",
    "alue=",
    "alue:",
    "alue\\",
    "alue ",
    'alues"',
    "alues'",
    'val"',
    "val'",
    "val=",
    "ALUE",
    "val\\",
)
_SHAPES: tuple[tuple[tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    (_FLAGS, _flag_spans),
    (("</", "lt;/"), _xml_spans),
    (_VALUE_MARKS, _pair_spans(_NAME_FIRST)),
    (_VALUE_MARKS, _pair_spans(_VALUE_FIRST)),
    (("form-data",), _pair_spans(_FORM_DATA)),
)
"""What a text must contain for a shape to be in it, and where its secrets stand then."""


def without_shapes(text: str, /) -> str:
    """The text without values that a shape says to be secret."""
    for marks, spans in _SHAPES:
        for mark in marks:
            if mark in text:
                text = _replaced(text, spans(text))
                break
    return text


def _replaced(text: str, spans: Iterator[Span]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        if start >= done and text[start:end] != HIDDEN:
            pieces += text[done:start], HIDDEN
            done = end
    return "".join((*pieces, text[done:])) if pieces else text
