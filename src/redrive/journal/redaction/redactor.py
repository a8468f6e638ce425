"""Redact values and texts: `redact` for structures, `redact_text` for text inside them.

Each pattern of secrets is linear in the length of any text.
`tests/unit/journal/redaction/test_redactor.py` measures it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from datetime import date, time, timedelta
from typing import Any, TypeAlias

from .secrets import is_secret, may_name_a_secret, normalize_name, redact_values

HIDDEN = "[redacted]"
Span: TypeAlias = tuple[int, int]

_BEGIN = r"(?:\b|(?<=%[0-9A-Fa-f]{2}))"
"""Start of a token. It may follow a percent-encoded character."""
_KNOWN_TOKENS = re.compile(
    r"""
    {B}eyJ[\w-]{5,}\.[\w-]*(?:\.[\w-]*)?                                       # a JSON Web Token
    | {B}(?:sk|pk|rk)[-_][\w-]{16,}                                            # payment and LLM services
    | (?:gh[pousr]|glpat|github_pat|glsa|xox[a-z])[-_][\w-]{10,} # code hosts, chat
    | {B}redrive_[\w-]{43}                                                       # tokens of the console
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
    """eyJ sk- sk_ pk- pk_ rk- rk_ ghp_ gho_ ghu_ ghs_ ghr_ glpat glsa github_pat xox xapp- redrive_
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


MAX_TEXT_CHARS = 2_000
"""Characters of a text that are kept."""
MAX_DEPTH = 20
"""Levels of a nested value that are kept."""

# A name of one or two words, quoted or not, and a sign. `"name", "value"` is a header in a list.
_NAME = re.compile(
    r"""(?<![\w.-])(?P<name>[\w.-]++(?:[ ][\w.-]++)?)(?P<quote>\\*["'])?\s*(?:[:=]{1,2}>?|(?<=["']),)\s*"""
)
_VALUE = re.compile(
    r"""
    \[redacted\]
    | [bBrRuU]{0,2}(?P<quote>\\*["'])(?:(?!(?P=quote)).|(?<=\\)(?P=quote))*(?:(?P=quote)|\Z)  # in quotes, or cut off within
    | [\[({].*                                                                # a structure: all that follows
    | (?:[^\s&"'\[({]|["'](?=\w))+(?:[\[({].*)?                               # a word; with a bracket in it, all that follows
    """,
    re.VERBOSE | re.DOTALL,
)
_DEFAULT = re.compile(r"(?:\s*\|\s*[\w.]+)*\s*=(?!=)\s*")
"""From an annotation to its default, as in `token: str | None = 'x'`."""
_LINE = re.compile(r"[^\r\n]*")
_LINE_HEADERS = ("authorization", "cookie")
"""Headers whose values are lines, not words: `Cookie: a=1; session=2`."""

_BEARER = re.compile(
    r"""\b(Bearer)\s+
    (?!(?:tokens?|auth|authentication|authorization|scheme|credentials?|is|was|not|of|or|and|required|missing|invalid|expired)
        (?![\w~+/=-]) | \w+=["'])
    [^\s"']+?(?=[,;]?(?:[\s"']|\Z))""",
    re.VERBOSE | re.IGNORECASE,
)
# An ordinary word after one of these is text ("token expired"). Anything else is a credential.
_SCHEME = re.compile(
    r"""\b((?i:Basic|Token|ApiKey))\s+(?!(?:[A-Za-z]?[a-z]{0,18}|[A-Z]{1,12})[.,:;!?)"']*(?:\s|\Z))[\w.~+/=-]{4,}""",
    re.VERBOSE,
)
_WEB = re.compile(r"""\b(https?://)[^\s/?#"'<>]*@""", re.IGNORECASE)
_USERINFO = re.compile(r"""(?<=://)([^/\s:@\["'<>]*):(?!\d{1,5}(?:[/?\#\s,;)]|\Z))[^\s"'<>]*@""")


def redact(value: Any, /, name: str = "", *, depth: int = 0) -> Any:
    """Return the value without secrets: by name, inside mappings and sequences, and inside text.

    The result contains only numbers, times, texts, lists, and mappings with text keys. It shares no
    mutable object with the value.
    """
    if name and is_secret(name):
        return HIDDEN
    if isinstance(value, str):
        return redact_text(value)
    if value is None or isinstance(value, (int, float, date, time, timedelta)):
        return value
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        pairs = [(_text(key), inner) for key, inner in value.items()]
        if len(pairs) > 1 and _names_a_secret(pairs):
            pairs = [
                (key, HIDDEN if normalize_name(key) in VALUE_KEYS else inner)
                for key, inner in pairs
            ]
        return {redact_text(key): redact(inner, key, depth=depth + 1) for key, inner in pairs}
    if isinstance(value, (list, tuple)):
        if (
            len(value) == 2
            and isinstance(value[0], (str, bytes))
            and _is_secret_before_a_value(_text(value[0]))
        ):
            return [_text(value[0]), HIDDEN]  # a header: many libraries use pairs
        # The value of a secret command-line option is the next item.
        follows_flag = [False, *map(_is_secret_flag, value)]
        return [
            HIDDEN if is_value else redact(inner, depth=depth + 1)
            for is_value, inner in zip(follows_flag, value, strict=False)
        ]
    if isinstance(value, Set):
        return [redact(inner, depth=depth + 1) for inner in value]
    return redact_text(_text(value))


def redact_text(text: str, /) -> str:
    """Return the text without tokens, passwords in addresses, and values of secret names.

    At most `MAX_TEXT_CHARS` characters are kept.
    """
    text = redact_values(text, HIDDEN)
    if text.isidentifier():
        return redact_values(redact_known_tokens(text), HIDDEN, names=True)
    if len(text) > 4 * MAX_TEXT_CHARS:
        # Drop the last word, because half a secret may no longer look like one.
        text = text[: 4 * MAX_TEXT_CHARS].rsplit(None, 1)[0] + " …"
    if "://" in text and "@" in text:
        text = _USERINFO.sub(rf"\1:{HIDDEN}@", text)
        text = _WEB.sub(rf"\1{HIDDEN}@", text)
    text = redact_unnamed_values(text)
    if may_name_a_secret(text):
        text = _redact_pairs(redact_patterns(text))
        text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _SCHEME.sub(rf"\1 {HIDDEN}", text)
    text = redact_values(redact_known_tokens(text), HIDDEN, names=True)
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "…"


def _redact_pairs(text: str) -> str:
    """Redact values that follow a secret name: `password=...`, `"token": "..."`."""
    pieces: list[str] = []
    position = 0
    for match in _NAME.finditer(text):
        name = match["name"]
        if match.start() < position or not _is_secret_before_a_value(name):
            continue
        is_header = match["quote"] is None and normalize_name(name).endswith(_LINE_HEADERS)
        value = (_LINE if is_header else _VALUE).match(text, match.end())
        if value is not None:
            pieces += text[position : match.end()], HIDDEN
            position = value.end()
            default = None if is_header else _DEFAULT.match(text, position)
            if default is not None and (value := _VALUE.match(text, default.end())) is not None:
                position = value.end()
    return "".join((*pieces, text[position:])) if pieces else text


def _text(value: object) -> str:
    try:
        return value.decode("latin-1") if isinstance(value, (bytes, bytearray)) else str(value)
    except Exception:  # The user's `__str__` raised.
        return f"({type(value).__name__} that cannot be read)"


def _is_secret_before_a_value(name: str) -> bool:
    """Return whether a value after this name is secret.

    Of two words, only the last counts: `API key: …` has a value, `token expired: …` has none.
    """
    first, _, second = name.partition(" ")
    if not second:
        return is_secret(name)
    if " " in second:
        return False
    return is_secret(second) or (
        normalize_name(second) in ("key", "keys", "string") and is_secret(f"{first}_{second}")
    )


def _names_a_secret(pairs: list[tuple[str, Any]]) -> bool:
    """Return whether a mapping is a pair itself, such as {"name": "password", "value": "…"}."""
    return any(
        isinstance(inner, str) and normalize_name(key) in NAME_KEYS and is_secret(inner)
        for key, inner in pairs
    )


def _is_secret_flag(item: object) -> bool:
    """Return whether an item of a command line is the name of a secret option."""
    return isinstance(item, str) and item[:1] == "-" and "=" not in item and is_secret(item)
