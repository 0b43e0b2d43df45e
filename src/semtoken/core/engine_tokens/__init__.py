"""The one reader of tokens and log-probabilities as engines spell them, for replies and for `score_logprobs`.

top_steps.py       TopToken, TopStep, StepList: plain records; untrusted values, checked
precision.py       the digits that an engine writes, and the error that each log-probability may have
spellings.py       items, lists, triples, dicts -> StepList
passes.py          engines' quirks: steps -> steps, or a note
token_names.py     id, bytes or text of a token -> the tokens of a vocabulary that may be meant; whether two
                   models have the same tokenizer
checked_list.py    TopStep                      -> tokens and probabilities, checked: the one reader of lists
known_names.py     what names in lists mean, by a vocabulary
listed_names.py    the same where no tokenizer is known; lists of best tokens -> a vocabulary
placing.py         the text of a message + steps -> where the steps spell it

Enter by `as_top_steps` with any list that an engine gave; reply shapes call the readers in spellings.py.
"""

from __future__ import annotations

from semtoken.core.engine_tokens.spellings import as_top_steps
from semtoken.core.engine_tokens.token_names import SharedVocabulary, check_shared_vocabulary
from semtoken.core.engine_tokens.top_steps import StepList, TopStep, TopToken

__all__ = [
    "SharedVocabulary",
    "StepList",
    "TopStep",
    "TopToken",
    "as_top_steps",
    "check_shared_vocabulary",
]
