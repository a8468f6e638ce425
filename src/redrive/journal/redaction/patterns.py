"""Patterns of secrets in text: known tokens, database messages, command lines, XML, pairs.

Each pattern is linear in the length of any text. `tests/unit/journal/redaction/test_redactor.py`
measures it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .names import is_secret

HIDDEN = "[redacted]"
Span: TypeAlias = tuple[int, int]

_BEGIN = r"(?:\b|(?<=%[0-9A-Fa-f]{2}))"
"""Start of a token. It may follow a percent-encoded character."""
_KNOWN_TOKENS = re.compile(
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
"""Tokens with a known format."""
_TOKEN_MARKS = tuple(
    """eyJ sk- sk_ pk- pk_ rk- rk_ ghp_ gho_ ghu_ ghs_ ghr_ glpat glsa github_pat xox xapp-
    hooks.slack AKIA ASIA AROA AIDA ABIA ACCA AIza ya29 GOCSPX whsec_ sq0 shp npm_ pypi- dckr_
    rubygems SG. key- SK _v1_ hf_ gsk_ xai- r8_ dapi hvs. hvb. hvr. sntry lin_api AGE- :AA
    -----B""".split()
)
"""Each token above contains one of these. Searching them is faster than the pattern."""
_MIN_TOKEN_CHARS = 9


def redact_known_tokens(text: str, /) -> str:
    """Redact tokens with a known format."""
    if len(text) >= _MIN_TOKEN_CHARS:
        for mark in _TOKEN_MARKS:
            if mark in text:
                return _KNOWN_TOKENS.sub(HIDDEN, text)
    return text


# ---- Values without a name: messages of databases and pydantic, and short options ----

_PYDANTIC = re.compile(r"(input_value=)(?:(?!, input_type=)[^\n])*")
_PARAMETERS = re.compile(r"(\[parameters: ).*?(?=\](?:\n\(Background|\Z)|\Z)", re.DOTALL)
_FAILING_ROW = re.compile(r"(Failing row contains \()[^\n]*")
_NUMBERED = re.compile(r"(\$\d{1,5} = )'(?:[^'\n]|'')*+'?")
_KEY_DETAIL = re.compile(
    r"Key \((?P<columns>[^=\n]*)\)=\((?P<value>[^\n]*?)(?=\) (?:already|is |conflicts|exists)|\)?$)",
    re.MULTILINE,
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


def redact_unnamed_values(text: str, /) -> str:
    """Redact values that messages of databases and pydantic quote, and those of short options."""
    if "input_value=" in text:
        text = _PYDANTIC.sub(rf"\1{HIDDEN}", text)
    if "[parameters: " in text:
        text = _PARAMETERS.sub(rf"\1{HIDDEN}", text)
    if "Failing row contains (" in text:
        text = _FAILING_ROW.sub(rf"\1{HIDDEN}).", text)
    if "$" in text:
        text = _NUMBERED.sub(rf"\1{HIDDEN}", text)
    if "Key (" in text:
        text = _replace_spans(text, _detail_spans(_KEY_DETAIL, text))
    if "Duplicate entry '" in text:
        text = _replace_spans(text, _detail_spans(_DUPLICATE, text))
    if " -" in text or "-u" in text or "'-" in text or '"-' in text:
        if any(client in text for client in _CLIENTS):
            text = _replace_spans(
                text, (match.span("value") for match in _SHORT_FLAG.finditer(text))
            )
        if "-u" in text or "-user" in text:
            text = _replace_spans(
                text, (match.span("value") for match in _CURL_USER.finditer(text))
            )
    return text


def _detail_spans(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        if any(is_secret(column) for column in re.findall(r"[\w-]+", match["columns"])):
            yield match.span("value")


# ---- Command lines ----

_FLAG = re.compile(r"""(?<![\w-])(?P<flag>--?[A-Za-z][\w.-]*)[ \t]+(?=[^\s-]|-[^\s-]*\d)""")
_ARGUMENT = re.compile(r"""(?P<quote>["'])(?:(?!(?P=quote)).)*+(?P=quote)?|[^\s"']+""", re.DOTALL)


def _flag_spans(text: str) -> Iterator[Span]:
    for match in _FLAG.finditer(text):
        if is_secret(match["flag"]):
            value = _ARGUMENT.match(text, match.end())
            if value is not None:
                yield value.span()


# ---- XML ----

_TAG = re.compile(
    r"""(?:<|&lt;)(?P<tag>[A-Za-z][\w:.-]*)(?P<attributes>(?:\s[^<>&]*)?)(?:(?<!/)>|&gt;)(?=[^<]|<!\[CDATA)""",
    re.DOTALL,
)
_NAMED = re.compile(r"""(?i:\b(?:name|key|id)\s*=\s*["'])(?P<name>[^"'<>]{1,100})""")


def _xml_spans(text: str) -> Iterator[Span]:
    position = 0
    for match in _TAG.finditer(text):
        if match.start() < position:
            continue
        tag = match["tag"]
        named = _NAMED.search(match["attributes"]) if match["attributes"] else None
        if is_secret(tag.rpartition(":")[2]) or (named is not None and is_secret(named["name"])):
            ends = [text.find(closing + tag, match.end()) for closing in ("</", "&lt;/")]
            position = min((end for end in ends if end >= 0), default=len(text))
            yield match.end(), position


# ---- Pairs of name and value: {"name": "password", "value": "..."}, <add key="..." value="..."/> ----

NAME_KEYS = frozenset(
    "name key field header parameter parameterkey parametername variable option label k attribute".split()
)
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
        for match in pattern.finditer(text):
            if is_secret(match["name"]):
                yield match.span("value")

    return spans


_FLAGS = (" -", "'-", '"-')
_VALUE_MARKS = tuple(
    """alue"|alue'|alue=|alue:|alue\\|alue |alues"|alues'|val"|val'|val=|ALUE|val\\""".split("|")
)
_PATTERNS: tuple[tuple[tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    (_FLAGS, _flag_spans),
    (("</", "lt;/"), _xml_spans),
    (_VALUE_MARKS, _pair_spans(_NAME_FIRST)),
    (_VALUE_MARKS, _pair_spans(_VALUE_FIRST)),
    (("form-data",), _pair_spans(_FORM_DATA)),
)
"""Marks, one of which a text must contain, and the spans of its secrets then."""


def redact_patterns(text: str, /) -> str:
    """Redact the values of secret names in command lines, XML, pairs and forms."""
    for marks, spans in _PATTERNS:
        for mark in marks:
            if mark in text:
                text = _replace_spans(text, spans(text))
                break
    return text


def _replace_spans(text: str, spans: Iterator[Span]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end in spans:
        if start >= position and text[start:end] != HIDDEN:
            pieces += text[position:start], HIDDEN
            position = end
    return "".join((*pieces, text[position:])) if pieces else text
