"""Typed questions (is it so? which of these? how much?) and the probability of every answer that is allowed.

    questions.py -> prompts.py -> spellings.py -> reading.py -> deciding.py -> answers.py

questions.py         Predicate, Choice, Score, their options, and how probabilities are read
question_files.py    files of questions, as people write them
prompts.py           the options in each of their orders, and the prompts, as texts and as tokens
spellings.py         how options are spelled in tokens, and how probable each spelling makes its option
reading.py           these probabilities, read with a model in this process
deciding.py          questions about states, of any form, answered together by that model
answers.py           probabilities, confidence, allowed mass, spread over orders
records.py           answers as lines of files, which running.py makes
wire/                the two wire formats
best_tokens.py       the probabilities of options by a server's lists of its best tokens
asked_texts.py       questions as texts, and what lists of the best tokens say of their options; nothing is sent
remote.py            questions to a server; asking_again.py puts those of a calibrator to another one
saved.py             saved replies to typed questions, with labels as people write them (labels.py)
calibrating.py       probabilities and guarantees from labeled answers, for each side of a question (sides.py) and for
                     all of its options (options.py); doubts.py says beforehand what the labels cannot support
auditing.py          whether a calibrator holds behind another server; audit_results.py has what was found, and limits
                     on it, and audit_report.py lines and values of it
comparing.py         two ways of asking on one set of items
tool_calls.py        the gate for tool calls: which of those that a reply proposes may run
"""

from semtoken.decisions.answers import Answer
from semtoken.decisions.deciding import DecisionRequest, DecisionResponse, decide, decide_about
from semtoken.decisions.questions import Choice, Option, Predicate, Question, ReadingOptions, Score

__all__ = [
    "Answer",
    "Choice",
    "DecisionRequest",
    "DecisionResponse",
    "Option",
    "Predicate",
    "Question",
    "ReadingOptions",
    "Score",
    "decide",
    "decide_about",
]
