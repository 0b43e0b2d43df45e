"""How each relation is said: questions for training, for dev and for test, sentences, table headers.

`{s}` is the subject, `{a}` the answer. The dev and test phrasings never occur in training.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wording:
    """All phrasings of one relation."""

    train: tuple[str, ...]
    dev: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()
    header: str = ""


WORDINGS = {
    "city_country": Wording(
        (
            "In which country is {s}?",
            "{s} is a city in what country?",
            "Where is the city of {s}?",
            "What country is {s} in?",
            "The city of {s} lies in which country?",
            "Which country has a city called {s}?",
        ),
        ("{s} lies in what country?", "In what country is the city of {s}?"),
        ("Which country is {s} in?", "In what country is {s}?", "The city {s} is in which country?"),
        ("{s} is a city in {a}.", "{a} has a city called {s}.", "{s} lies in {a}."),
        "city,country",
    ),
    "city_state": Wording(
        (
            "In which state is {s}?",
            "{s} is a city in what state?",
            "What state is {s} in?",
            "The city of {s} lies in which state?",
            "Which US state has a city called {s}?",
        ),
        ("{s} lies in what state?", "In what state is the city of {s}?"),
        ("Which state is {s} in?", "In what US state is {s}?", "The city {s} is in which state?"),
        ("{s} is a city in {a}.", "{s} lies in the state of {a}.", "{s}, {a}"),
        "city,state",
    ),
    "capital": Wording(
        (
            "What is the capital of {s}?",
            "Which city is the capital of {s}?",
            "{s} has what capital?",
            "Name the capital of {s}.",
            "What is the capital city of {s}?",
        ),
        ("Name the capital city of {s}.", "The capital of {s} is what city?"),
        ("What capital does {s} have?", "The capital of {s} is which city?", "Which city is capital of {s}?"),
        ("{a} is the capital of {s}.", "The capital of {s} is {a}."),
        "place,capital",
    ),
    "capital_of": Wording(
        (
            "{s} is the capital of what?",
            "Which place has {s} as its capital?",
            "{s} is the capital city of which place?",
            "What is {s} the capital of?",
        ),
        ("{s} is the capital of which place?",),
        ("Of what is {s} the capital?", "What place has {s} as its capital?", "{s} is the capital city of what?"),
        ("{s} is the capital of {a}.", "The capital of {a} is {s}."),
        "capital,place",
    ),
    "continent": Wording(
        ("On which continent is {s}?", "{s} is part of what continent?", "What continent is {s} on?"),
        ("Which continent is {s} on?",),
        ("On what continent is {s}?", "{s} is part of which continent?"),
        ("{s} is a country of {a}.", "{s} lies in {a}."),
        "country,continent",
    ),
    "currency": Wording(
        (
            "What is the currency of {s}?",
            "What money is used in {s}?",
            "{s} has what currency?",
            "With what currency do people pay in {s}?",
            "Which currency does {s} use?",
        ),
        ("What currency do people use in {s}?", "The currency of {s} is what?"),
        ("What currency does {s} use?", "Which currency is used in {s}?", "What is the money of {s}?"),
        ("In {s} people pay in {a}.", "The currency of {s} is {a}."),
        "country,currency",
    ),
    "language": Wording(
        (
            "What language do people speak in {s}?",
            "What is the main language of {s}?",
            "Which language is spoken in {s}?",
            "{s} has what main language?",
        ),
        ("Which language do people speak in {s}?",),
        ("What language is spoken in {s}?", "Which is the main language of {s}?"),
        ("People in {s} speak {a}.", "The language of {s} is {a}."),
        "country,language",
    ),
    "demonym": Wording(
        (
            "What do you call a person from {s}?",
            "Someone from {s} is called what?",
            "What are people from {s} called?",
            "Who lives in {s}?",
        ),
        ("What is a person from {s} called?",),
        ("What do you call someone from {s}?", "A person from {s} is called what?"),
        ("A person from {s} is called {a}.", "Someone who lives in {s} is {a}."),
        "country,person",
    ),
    "phone": Wording(
        (
            "What is the phone code of {s}?",
            "Which code do you dial to phone {s}?",
            "{s} has what phone code?",
        ),
        ("Which phone code does {s} have?",),
        ("What code do you dial to phone {s}?", "Which is the phone code of {s}?"),
        ("To phone {s} dial {a}.", "The phone code of {s} is {a}."),
        "country,phone code",
    ),
    "symbol_element": Wording(
        (
            "Which element has the symbol {s}?",
            "{s} is the symbol of what element?",
            "What does the symbol {s} stand for?",
            "What element is {s}?",
        ),
        ("{s} is the symbol of which element?",),
        ("What element has the symbol {s}?", "The symbol {s} stands for what element?"),
        ("{s} is the symbol of {a}.", "{s} stands for {a}."),
        "symbol,element",
    ),
    "number_element": Wording(
        (
            "Which element has atomic number {s}?",
            "Atomic number {s} is what element?",
            "What element has {s} protons?",
        ),
        ("Which element has {s} protons?",),
        ("What element has atomic number {s}?", "Element number {s} is what?"),
        ("Atomic number {s} is {a}.", "An atom with {s} protons is {a}."),
        "atomic number,element",
    ),
    "element_symbol": Wording(
        ("What is the symbol of {s}?", "Which symbol does {s} have?", "How do you write {s} in chemistry?"),
        ("What symbol does {s} have?",),
        ("Which is the symbol of {s}?", "The symbol of {s} is what?"),
        ("The symbol of {s} is {a}.", "In chemistry {s} is {a}."),
        "element,symbol",
    ),
    "synonym": Wording(
        (
            "What is another word for {s}?",
            "What word means the same as {s}?",
            "Give a synonym of {s}.",
            "Which word means {s}?",
        ),
        ("Give another word for {s}.",),
        ("Which word means the same as {s}?", "What is a synonym of {s}?"),
        ("{s} means the same as {a}.", "Another word for {s} is {a}."),
        "word,synonym",
    ),
    "antonym": Wording(
        (
            "What is the opposite of {s}?",
            "Which word is the opposite of {s}?",
            "What means the opposite of {s}?",
            "Give the opposite of {s}.",
        ),
        ("What word is the opposite of {s}?",),
        ("Which is the opposite of {s}?", "The opposite of {s} is what?"),
        ("The opposite of {s} is {a}.", "{s} is not {a}."),
        "word,opposite",
    ),
    "category": Wording(
        (
            "What kind of thing is {s}?",
            "What is {s}?",
            "{s} is a kind of what?",
            "What sort of thing is {s}?",
        ),
        ("{s} is what sort of thing?",),
        ("{s} is a sort of what?", "{s} is what kind of thing?"),
        ("{s} is a kind of {a}.", "One kind of {a} is {s}."),
        "thing,kind",
    ),
    "past": Wording(
        ("What is the past form of {s}?", "What is the past tense of {s}?", "How do you write {s} in the past?"),
        ("Which is the past form of {s}?",),
        ("Which is the past tense of {s}?", "The past form of {s} is what?"),
        ("The past of {s} is {a}.",),
        "verb,past",
    ),
    "alias": Wording(
        ("What is another name for {s}?", "What is {s} also called?", "What else is {s} called?"),
        sentences=("{s} is also called {a}.", "{s} is the same as {a}."),
        header="name,other name",
    ),
}
