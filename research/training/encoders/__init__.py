"""Makes the two small encoders beside the almanac: `almanac-nli` and `almanac-sts`.

Read in that order: `things` (what the almanac's facts are about, and which of it is held out), `surface` (other ways
to write one text), `pairs` (two texts and how they are related), `encoder` (tokenizer, network, training),
`evaluation`, `card`. README.md gives the reasons.
"""
