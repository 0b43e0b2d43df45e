"""Other ways to write one text, and texts with a piece missing."""

from __future__ import annotations

import random
import string

from semtoken.clustering.function_words import english_stopwords

FRAMES = ("the {}", "The {}", "a {}", "It is {}.", "The answer is {}.", "it is {}", "That would be {}.", "It was {}.")
LONGEST_PIECE = 6  # letters of a word that go as one piece


def rewrite(text: str, rng: random.Random) -> str:
    """The same words with other capitals, punctuation or an article, or in a frame that adds nothing."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice((str.lower, str.upper, str.title, str.capitalize))(text)
    if kind < 0.6:
        return rng.choice((text + ".", f'"{text}"', text + "\n", text + ",", " " + text, text + "!"))
    if kind < 0.7 and text.isupper() and 2 <= len(text) <= 3:
        return "".join(letter + "." for letter in text)
    return rng.choice(FRAMES).format(text)


def is_filler(piece: str) -> bool:
    """Whether a piece of text says nothing: punctuation, white space, a function word."""
    plain = piece.strip(string.punctuation + string.whitespace).lower()
    return plain == "" or plain in english_stopwords()


def remove_piece(text: str, rng: random.Random) -> tuple[str, float]:
    """Cut the text into pieces as a tokenizer might and leave one out.

    Returns
    -------
    str
        What is left.
    float
        The removed share of the letters that say something, in [0, 1].
    """
    pieces = _cut(text, rng)
    gone = rng.randrange(len(pieces))
    weights = [0 if is_filler(piece) else len(piece.strip()) for piece in pieces]
    return "".join(pieces[:gone] + pieces[gone + 1 :]).strip(), weights[gone] / max(1, sum(weights))


def _cut(text: str, rng: random.Random) -> list[str]:
    pieces: list[str] = []
    for number, word in enumerate(text.split(" ")):
        lead = " " if number else ""
        body = word.rstrip(string.punctuation + "\n")
        if len(body) > 3 and rng.random() < 0.3:
            at = rng.randint(1, min(len(body) - 1, LONGEST_PIECE))
            pieces += [lead + body[:at], body[at:]]
        elif body:
            pieces.append(lead + body)
        if len(word) > len(body):
            pieces.append(word[len(body) :])
    return pieces
