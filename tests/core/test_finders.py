"""The stretches of a text that the finders find."""

from __future__ import annotations

import pytest

from semtoken.core.parts import parts_of
from semtoken.core.parts.budget import MAX_CHARACTERS
from semtoken.core.parts.code import _of_code
from semtoken.core.parts.prose import LONGEST_PIECE, _pieces, find_phrases, phrases
from semtoken.errors import InvalidInputError
from tests.core.answers import answer_of, letters
from tests.rows import each


def found(text: str, by: str, **options: object) -> list[tuple[str, str]]:
    """Text and kind of each part of a text whose every character is a token."""
    answer = answer_of([character.encode() for character in text], [-0.1] * len(text))
    return [(part.text, part.kind) for part in parts_of(answer, by, **options)]  # type: ignore[arg-type]


def texts(text: str, by: str, **options: object) -> list[str]:
    return [piece for piece, _ in found(text, by, **options)]


def test_words_follow_unicode() -> None:
    assert texts("It can't cost 3.14, naïve Größe!", "word") == ["It", "can't", "cost", "3.14", "naïve", "Größe"]
    assert texts("東京は日本の首都です。Yes", "word") == ["東京", "は", "日本", "の", "首都", "です", "Yes"]
    assert texts("野𠮷家😀です", "word") == ["野", "𠮷", "家", "です"]  # beyond the first 65,536 characters, too


def test_a_long_vowel_is_no_break() -> None:
    assert texts("東京タワーです", "word") == ["東京タワー", "です"]
    assert texts("コーヒーを、ラーメンと。", "word") == ["コーヒー", "を", "ラーメン", "と"]


@pytest.mark.parametrize(
    ("answer", "phrases"),
    [
        ("挪威的首都是奥斯陆。", "挪威 的 首都 是 奥斯陆"),
        ("ノルウェーの首都はオスロ", "ノルウェー の 首都 は オスロ"),
        ("เมืองหลวงคือออสโล", "เมือง หลวง คือ ออสโล"),
        ("ນະຄອນຫຼວງຂອງລາວແມ່ນວຽງຈັນ", "ນະຄອນຫຼວງ ຂອງ ລາວ ແມ່ນ ວຽງຈັນ"),
        ("រាជធានីនៃកម្ពុជាគឺភ្នំពេញ", "រាជធានី នៃ កម្ពុជា គឺ ភ្នំពេញ"),
        ("The 首都 is 奥斯陆", "首都 奥斯陆"),
        ("京 Oslo", "京 Oslo"),
    ],
)
def test_a_text_without_blanks_has_phrases(answer: str, phrases: str) -> None:
    assert texts(answer, "phrase") == phrases.split()


def test_function_words_with_marks_around_them_are_function_words() -> None:
    assert texts("_the_ tower", "phrase") == ["tower"]
    assert texts("I don’t like Oslo", "phrase") == ["like Oslo"]
    assert texts("I don't like Oslo", "phrase") == ["like Oslo"]
    assert texts("I donʼt like Oslo", "phrase") == ["like Oslo"]


@pytest.mark.parametrize(
    ("answer", "phrases"),
    [
        ("It was John F. Kennedy.", "John F. Kennedy"),
        ("J. K. Rowling wrote it.", "J. K. Rowling wrote"),
        ("J.R.R. Tolkien.", "J.R.R. Tolkien"),
        ("It holds vitamin C. Oranges do.", "holds vitamin C|Oranges"),
        ("It is Oslo. Norway is cold.", "Oslo|Norway|cold"),
        ("Oslo saw The C. Oranges.", "Oslo saw|C|Oranges"),  # the capital word is no part of its phrase
    ],
)
def test_initials_belong_to_the_name(answer: str, phrases: str) -> None:
    assert "|".join(answer[found.start : found.end] for found in find_phrases(answer)) == phrases


def test_phrases_are_runs_of_content_words() -> None:
    text = "The capital city of New South Wales is Sydney, not Canberra."
    assert texts(text, "phrase") == ["capital city", "New South Wales", "Sydney", "Canberra"]
    assert texts("a naïve Größe", "phrase") == ["naïve Größe"]
    assert texts("the film Who Framed Roger", "phrase") == ["film Who Framed Roger"]
    assert texts(f"{text} " * 20, "phrase") == texts(text, "phrase") * 20
    assert phrases(" " + "a" * MAX_CHARACTERS) == [(0, MAX_CHARACTERS + 1)]
    assert texts("No", "phrase") == ["No"]
    assert texts("  ", "phrase") == []


def test_sentences_do_not_end_at_abbreviations() -> None:
    text = "Dr. Smith paid 3.50 dollars. He left!\n\n  Did he? "
    assert texts(text, "sentence") == ["Dr. Smith paid 3.50 dollars.", "He left!", "Did he?"]
    assert texts("Das ist z. B. gut. Ja.", "sentence", language="de") == ["Das ist z. B. gut.", "Ja."]


@each(
    ("text", "expected"),
    [
        ("in 1945.", [("1945", "number")]),
        ("it is 1,234.56 or -7", [("1,234.56", "number"), ("-7", "number")]),
        ("costs 12.50 EUR now", [("12.50 EUR", "money"), ("12.50", "number")]),
        ("costs $1,200", [("$1,200", "money"), ("1,200", "number")]),
        ("about 5 kg of", [("5 kg", "quantity"), ("5", "number")]),
        ("rose 3.5 % to", [("3.5 %", "percent"), ("3.5", "number")]),
        ("on July 4, 1776 at 9:30 am", [("July 4, 1776", "date"), ("9:30 am", "time")]),
        ("on 2024-05-01 or 1.5.2024", [("2024-05-01", "date"), ("1.5.2024", "date")]),
        ("the 3rd of May 2020", [("3rd of May 2020", "date")]),
        ("no figures", []),
        ("room B12", []),
        ("born in 1945 in Berlin", [("1945", "number")]),
        ("1 in 3", [("1", "number"), ("3", "number")]),
        ("6 inches", [("6 inches", "quantity"), ("6", "number")]),
        ("1945 s, 1945 h or 2020 t", [("1945", "number"), ("1945", "number"), ("2020", "number")]),
        ("the 1990s and the 90s", [("1990", "number"), ("90", "number")]),
        ("15s or 90 s", [("15s", "quantity"), ("15", "number"), ("90 s", "quantity"), ("90", "number")]),
        ("at 10 a.m. or 10 PM", [("10 a.m.", "time"), ("10 PM", "time")]),
        ("9.30 p.m.", [("9.30 p.m.", "time")]),
        ("1,2,3", [("1", "number"), ("2", "number"), ("3", "number")]),
        ("12,5 kg", [("12,5 kg", "quantity"), ("12,5", "number")]),
        ("1,200,300 or 1.200,5", [("1,200,300", "number"), ("1.200,5", "number")]),
        ("v2.0, 2.0.1 and 192.168.0.1", []),
        ("1990-1995", [("1990", "number"), ("1995", "number")]),
        (
            "at 60 km/h or 5 m/s",
            [("60 km/h", "quantity"), ("60", "number"), ("5 m/s", "quantity"), ("5", "number")],
        ),
        ("$5bn and £3.2 million", [("$5bn", "money"), ("5", "number"), ("£3.2 million", "money"), ("3.2", "number")]),
        ("$5 bananas", [("$5", "money"), ("5", "number")]),
        ("CHF 1’234.50", [("CHF 1’234.50", "money"), ("1’234.50", "number")]),
        ("₹12,34,567.50 or 1,00,000", [("₹12,34,567.50", "money"), ("12,34,567.50", "number"), ("1,00,000", "number")]),
        ("12\u00a0% of 5\u00a0€", [("12\u00a0%", "percent"), ("12", "number"), ("5\u00a0€", "money"), ("5", "number")]),
        ("at 10:30\u202fPM", [("10:30\u202fPM", "time")]),
        ("2024-05-03T10:00:00.5+02:00", [("2024-05-03T10:00:00.5+02:00", "date")]),
        ("価格は100円、2024年5月3日に", [("100", "number"), ("2024年5月3日", "date")]),
        ("重さは3kgの箱", [("3kg", "quantity"), ("3", "number")]),
        ("총100원", [("100", "number")]),
        ("ราคา100บาท", [("100", "number")]),
        ("٥٫٥ و ٣٬٥٠٠", [("٥٫٥", "number"), ("٣٬٥٠٠", "number")]),
        (".5 and -.25, not 1.5.5", [(".5", "number"), ("-.25", "number")]),
        ("_42_ and **7**", [("42", "number"), ("7", "number")]),
        ("0x1F, 1_000 and a_5", []),
        ("3 μm", [("3 μm", "quantity"), ("3", "number")]),
    ],
)
def test_figures(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text, "number") == expected


def test_references() -> None:
    text = "See https://example.org/a?b=1, or write to a.b@example.org. Log: /var/log/x.log [3]"
    assert found(text, "reference") == [
        ("https://example.org/a?b=1", "url"),
        ("a.b@example.org", "email"),
        ("/var/log/x.log", "path"),
        ("[3]", "citation"),
    ]


def test_identifiers_once_at_their_first_use() -> None:
    text = "Use this:\n```python\ntotal = add(3, total)\nprint(total, 'x y')\n```\nand total is done."
    assert found(text, "identifier") == [
        ("total", "identifier"),
        ("add", "call"),
        ("3", "literal"),
        ("print", "call"),
        ("x y", "literal"),
    ]
    assert found("let abc = 12;", "identifier", language="javascript") == [("abc", "identifier"), ("12", "literal")]


def test_a_finder_of_your_own() -> None:
    answer = answer_of([b"New", b" York", b" wins"], [-0.5, -0.25, -1.0], surface=[-0.125, -0.25, -1.0])
    [part] = answer_parts = parts_of(answer, lambda text: [(text.index("New"), 8, "place")])
    assert (part.text, part.kind, part.equality, part.tokens) == ("New York", "place", "surface", (0, 1))
    assert part.product == pytest.approx(0.6872892787909722)  # exp(-0.375)
    assert len(answer_parts) == 1


@pytest.mark.parametrize("finder", [lambda _: [(0, 99)], lambda _: [(2, 1)], lambda _: [3], lambda _: [("a", "b")]])
def test_a_finder_that_gives_no_ranges_is_refused(finder: object) -> None:
    with pytest.raises(InvalidInputError, match=r"A finder g[ai]ve"):
        parts_of(answer_of([b"abc"], [-0.1]), finder)  # type: ignore[arg-type]


def test_what_is_unknown_is_refused() -> None:
    answer = answer_of([b"abc"], [-0.1])
    with pytest.raises(InvalidInputError, match="by must be"):
        parts_of(answer, "paragraph")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'equality' must be"):
        parts_of(answer, "word", equality="same")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="schema must be"):
        parts_of(answer, "field", schema=3)
    with pytest.raises(InvalidInputError, match="knows no language"):
        parts_of(answer, "identifier", language="klingon++")


def test_a_part_of_code_begins_behind_the_blanks_of_its_token() -> None:
    text = "x = 1\n  y (2)"
    [part] = _of_code(text, 6, [(0, "identifier", "  y ")], set())
    assert (part.start, part.end, text[part.start : part.end]) == (8, 9, "y")


def test_a_long_text_is_divided_at_the_last_end_of_a_sentence_that_fits() -> None:
    sentence = "It was so. "
    text = sentence * 1_000
    pieces = list(_pieces(text))
    assert "".join(text[a:b] for a, b in pieces) == text and len(pieces) == 3
    assert all(text[a:b].endswith(sentence) for a, b in pieces)
    assert all(LONGEST_PIECE - len(sentence) < b - a <= LONGEST_PIECE for a, b in pieces[:-1])
    unbroken = "a" * (LONGEST_PIECE + 1)
    assert list(_pieces(unbroken)) == [(0, LONGEST_PIECE), (LONGEST_PIECE, LONGEST_PIECE + 1)]


def test_a_field_that_is_not_there_has_no_place() -> None:
    schema = {"properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
    parts = parts_of(letters('{"a": 7}'), "field", schema=schema)
    [missing] = [part for part in parts if not part.present]
    assert (missing.path, missing.start, missing.end, missing.text) == ("/b", 0, 0, "")
