"""semtoken inside the tools that people already use: one module for each tool.

A module imports its host when it is imported itself, needs nothing else of it, and says which versions it is for.
Hosts are no extras of semtoken, because those who want a module have its host already.

hosts.py          the hosts and their versions
lm_polygraph.py   lm-polygraph: an estimator, and a calculator that keeps no arrays of the vocabulary

docs/integrations/ has a page for each.
"""
