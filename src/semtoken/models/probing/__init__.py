"""Questions to the model about an answer that it gave, on demand: what else it could have meant, and with what chance.

`competing` groups the tokens that compete at one step by meaning; `disputed` lets the model go on with the best of
each and leads with what the branches disagree on; `with_choices` asks for the whole distribution over the allowed
values of a field; `p_true_log_probs` asks whether the answer is true. All of it is computed by further passes of the
model that gave the answer, so it works in process. Enter by these functions, or by `ScoredModel.disputed`.
`InvalidInputError` says that an argument is of another kind, `BackendError` that the engine does not show all tokens.
"""

from __future__ import annotations

from semtoken.models.probing.choices import with_choices
from semtoken.models.probing.competing import Competitor, competing, competing_in_record
from semtoken.models.probing.disputes import Dispute, disputed, doubtful_steps, only_in_form
from semtoken.models.probing.p_true import p_true_log_probs, p_true_prompt

__all__ = [
    "Competitor",
    "Dispute",
    "competing",
    "competing_in_record",
    "disputed",
    "doubtful_steps",
    "only_in_form",
    "p_true_log_probs",
    "p_true_prompt",
    "with_choices",
]
