"""The files of semtoken's embedded models, in the folders `model`, `nli` and `sts` beside this file."""
