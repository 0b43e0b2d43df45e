"""Typed questions (is it so? which of these? how much?) and the probability of every answer that is allowed.

    questions.py -> prompts.py -> spellings.py -> deciding.py -> answers.py

questions.py         Predicate, Choice, Score, their options, and how probabilities are read
prompts.py           the words that the model reads, and their tokens
spellings.py         how options are spelled in tokens, and the mass of each
deciding.py          questions about states, of any form, answered together by a model in this process
answers.py           probabilities, confidence, allowed mass, spread over orders
wire/                the two wire formats
remote.py            questions to a server
top_tokens.py        the mass of each option from the lists of best tokens that a server gives
decision_records.py  answers as lines of files; running.py makes them
calibrating.py       chances and promises from labelled answers (options.py: probabilities and sets of all options)
auditing.py          whether a calibrator holds behind another server
"""

from semtoken.decisions.answers import AnsweredQuestion
from semtoken.decisions.deciding import Inquiry, InquiryAnswers, decide, decide_about
from semtoken.decisions.questions import Choice, Option, Predicate, Question, ReadingOptions, Score

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
