"""Campaigns against the whole package: what must never happen, tried again and again.

    python -m tests.hostile --seed 7                 all campaigns in their short form
    python -m tests.hostile functions --calls 1000000
    python -m tests.hostile functions --seed 7 --first 4711 --calls 1      one case again

Every case is made from the seed and its number alone, so that each one can be tried again. At the end stands a table of
what was tried and what survived; the exit status is 1 unless all of it did. All traffic stays on this machine.
"""
