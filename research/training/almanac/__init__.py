"""Makes the embedded model `almanac`: facts -> corpus -> tokenizer -> training -> evaluation.

Read in that order: `sources` and `wordnet` (what ordinary libraries hold), `names` (what is written by hand),
`facts` (relations), `exposure` (how often each fact is said, and how often wrongly), `templates` and `corpus`
(how it is said), `questions`, `tokenizer`, `optimizer`, `train`, `export`, `evaluate`.
README.md gives the reasons.
"""
