"""The grammar of selectors: from text to terms; a mistake is named with its place.

lark reads it with a table (LALR), so neither time nor stack depends on how the text is nested:
4,096 characters of anything end within a tenth of a second. Keywords are words of ASCII in any
case; they are told from names here, not by a pattern, which would take a long s for an s. The
parser is made on first use and kept; nothing else is.
"""

import functools
from typing import cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ternmq.batch.selector.builder import Builder, Mistake, Operand, condition_of
from ternmq.batch.selector.terms import KEYWORDS, NAME_PATTERN, Term
from ternmq.core.errors import BadFilter

LENGTH_MAX = 4_096

GRAMMAR = rf"""
    ?start: either
    ?either: both (_OR both)*
    ?both: inverse (_AND inverse)*
    ?inverse: NOT inverse -> negated
        | test
    ?test: operand
        | operand OPERATOR operand -> compared
        | operand [NOT] _BETWEEN operand _AND operand -> between
        | operand [NOT] _IN _OPEN item (_COMMA item)* _CLOSE -> among
        | operand [NOT] SEARCH STRING -> search
        | operand _IS [NOT] NULL -> missing
    ?operand: item
        | NAME -> name
        | QUOTED -> quoted
        | (TRUE | FALSE | NULL) -> word
        | _OPEN either _CLOSE -> grouped
    ?item: STRING -> string
        | [SIGN] NUMBER -> number

    %declare NOT _AND _OR _BETWEEN _IN _IS NULL TRUE FALSE SEARCH
    NAME: /{NAME_PATTERN}/
    QUOTED: /"(?:[^"]|"")+"/
    STRING: /'(?:[^']|'')*'/
    NUMBER: /[0-9]+[lL]|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?/
    SIGN: /[+-]/
    OPERATOR: /<>|<=|>=|=|<|>/
    _OPEN: "("
    _CLOSE: ")"
    _COMMA: ","
    SPACE: /[ \t\r\n\f]+/
    REMARK.2: /--[^\n]*|\/\*[\s\S]*?\*\//
    %ignore SPACE
    %ignore REMARK
"""

_TERMINALS = {"CONTAINS": "SEARCH", "STARTSWITH": "SEARCH", "ENDSWITH": "SEARCH"} | {
    word: f"_{word}" for word in ("AND", "OR", "BETWEEN", "IN", "IS")
}
_EXPECTED = {
    "NAME": "a property",
    "STRING": "a string",
    "NUMBER": "a number",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
    "_OPEN": "(",
    "_CLOSE": ")",
    "_COMMA": "a comma",
    "OPERATOR": "= <> < <= > >=",
    "_BETWEEN": "BETWEEN",
    "_IN": "IN",
    "_IS": "IS",
    "SEARCH": "CONTAINS, STARTSWITH, ENDSWITH",
    "NOT": "NOT",
    "_AND": "AND",
    "_OR": "OR",
    "$END": "the end",
}
_UNENDED = {"'": "the string", '"': "the quoted name", "/": "the remark"}


def parse(text: str) -> Term:
    """The terms of this selector; `BadFilter` with `position`, `line` and `column` in details."""
    try:
        if len(text) > LENGTH_MAX:
            raise Mistake(
                LENGTH_MAX, f"{len(text):,} characters; at most {LENGTH_MAX:,} are allowed"
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Mistake(error.start, "this is half a character") from None
        whole = cast(Operand, _parser().parse(text))  # The builder makes nothing else.
        return condition_of(whole).term
    except Mistake as mistake:
        at, what = mistake.at, str(mistake)
    except UnexpectedInput as error:
        at, what = _syntax_error(text, error)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    raise BadFilter(
        f"the filter is wrong at line {line}, column {column}: {what}",
        position=at,
        line=line,
        column=column,
    )


@functools.cache
def _parser() -> Lark:
    """Built on first use: programs that filter nothing do not wait for it."""
    return Lark(
        GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=Builder(),
        lexer_callbacks={"NAME": _keyword},
    )


def _keyword(token: Token) -> Token:
    word = token.upper()
    if word not in KEYWORDS or not token.isascii():
        return token
    return Token.new_borrow_pos(_TERMINALS.get(word, word), token, token)


def _syntax_error(text: str, error: UnexpectedInput) -> tuple[int, str]:
    if isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        if text[at] in "'\"" or text.startswith("/*", at):
            return at, f"{_UNENDED[text[at]]} that starts here does not end"
        if text.startswith("!=", at):
            return at, "not equal is written <>"
        return at, f"{text[at]!r} means nothing here"
    assert isinstance(error, UnexpectedToken)
    token = error.token
    accepted = error.accepts or error.expected
    expected = ", ".join(words for name, words in _EXPECTED.items() if name in accepted)
    if token.type == "$END":
        return len(text), f"expected {expected}, and it ends"
    shown = token if len(token) <= 40 else token[:40] + "…"
    return token.start_pos or 0, f"expected {expected}, found {shown}"
