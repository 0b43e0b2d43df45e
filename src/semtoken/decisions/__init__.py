"""Typed questions (is it so? which of these? how much?) and the probability of every answer that is allowed.

    questions.py -> prompts.py -> spellings.py -> lookups.py -> deciding.py -> answers.py

questions.py   Predicate, Choice, Score, and their options
options.py     how probabilities are read
prompts.py     the words that the model reads, and their tokens
spellings.py   how options are spelled in tokens, and the mass of each
lookups.py     log-probabilities behind prompts: as one tree, or by any engine
deciding.py    questions about states, answered together
answers.py     probabilities, confidence, allowed mass, spread over orders
about.py       questions and states of any form
wire/          the two wire formats
"""

from semtoken.decisions.about import decide_about
from semtoken.decisions.answers import AnsweredQuestion
from semtoken.decisions.deciding import Inquiry, InquiryAnswers, decide
from semtoken.decisions.options import ReadingOptions
from semtoken.decisions.questions import Choice, Option, Predicate, Question, Score

__all__ = [
    "AnsweredQuestion",
    "Choice",
    "Inquiry",
    "InquiryAnswers",
    "Option",
    "Predicate",
    "Question",
    "ReadingOptions",
    "Score",
    "decide",
    "decide_about",
]
