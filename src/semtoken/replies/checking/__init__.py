"""A folder of saved replies in, the most doubtful answers out: `semtoken check`.

finding.py       files, folders, globs, standard input -> replies; dividing.py has those of one file
saved_reply.py   a reply that was saved, with its question and its identifiers
questions.py     questions from a file, joined with the replies by the identifiers that ids.py finds
saved_blocks.py  the semtoken blocks of replies that were saved from `semtoken serve` and `proxy`
answers.py       replies -> scored answers, ranked by the number that ranks them best
doubts.py        the most doubtful stretch of an answer, the model's alternatives to it, and a sentence on it
fields.py        fields of JSON answers: value, confidence, likely alternatives, whether to look
shards.py        the same by several processes or machines
tables.py        ranked answers as rows for CSV, Markdown and the page

Enter by `rank_replies`.
"""

from __future__ import annotations

from semtoken.replies.checking.answers import RankedAnswer, RankedReplies, rank_replies
from semtoken.replies.checking.doubts import Doubt, doubt_of

__all__ = ["Doubt", "RankedAnswer", "RankedReplies", "doubt_of", "rank_replies"]
