"""Typed questions (is it so? which of these? how much?) and the probability of every answer that is allowed.

    questions.py -> prompts.py -> spellings.py -> lookups.py -> deciding.py -> answers.py

questions.py   Predicate, Choice, Score, and their options
prompts.py     the words that the model reads, and their tokens
spellings.py   how options are spelled in tokens, and the mass of each
lookups.py     log-probabilities behind prompts: as one tree, or by any engine
deciding.py    questions about states, answered together
wire/          the two wire formats
answers.py     probabilities, confidence, allowed mass, spread over orders
"""

from semtoken.decisions.answers import AnsweredQuestion
from semtoken.decisions.deciding import Answers, Inquiry, ReadingOptions, decide, decide_about
from semtoken.decisions.questions import Choice, Option, Predicate, Question, Score

__all__ = [
    "AnsweredQuestion",
    "Answers",
    "Choice",
    "Inquiry",
    "Option",
    "Predicate",
    "Question",
    "ReadingOptions",
    "Score",
    "decide",
    "decide_about",
]
