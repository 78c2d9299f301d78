"""Kinds of clear errors, for counting: the first pattern that fits a message."""

from __future__ import annotations

import re

KINDS = (
    (
        "zip: no readable directory",
        r"is not a readable zip file",
    ),
    (
        "zip: unsafe or odd name",
        r"leaves the archive|or cannot be printed",
    ),
    ("zip: link, encryption, method", r"symbolic link|encrypted|packed by method"),
    (
        "zip: size, bomb",
        r"bomb|bytes, more than|unpacks to",
    ),
    ("zip: one name twice, nothing in it", r"same name twice|holds no file|one \.txt file"),
    ("zip or gzip: damaged content", r"truncated or damaged|is damaged|damaged gzip"),
    (
        "NIST: layout, class or writer",
        r"not NIST's|class folder|are not in by_class|name.* of 1 to 200.*, got '(?=.*\.png)",
    ),
    ("image: no PNG, size, mode, chunks", r"PNG|pixels: expected a square"),
    (
        "name that is refused",
        r"printable characters without path|cannot be told apart|the list users must hold",
    ),
    (
        "JSON: not valid",
        r"not valid JSON|cannot be read|truncated|more after the end|the file is|a number is",
    ),
    ("JSON: a key twice", r"comes twice|same key twice"),
    ("LEAF: header", r"num_samples|user_data|hierarchies|the play of|users and"),
    (
        "LEAF: items",
        r"x and y|entries in x|numbers|pixels|labels|strings of|single char|does not follow|no user with",
    ),
    ("e-text: no text, no play, no user", r"is empty|zero bytes|web page|No play|No user|without a title"),
    ("text: symbols outside of the vocabulary", r"outside of LEAF's"),
    (
        "configuration: not plain YAML",
        r"plain YAML|UTF-8 text|a mapping \(key: value\)|depth of|number of values|every key",
    ),
    ("configuration: unknown key or name", r"^Unknown|absent"),
    ("configuration: value", r"^Expected"),
)


def kind_of(message: str) -> str:
    """The kind of a message; "other" for one that fits no pattern."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, message) is not None), "other")
