"""The version of semtoken, in a module of its own, so that every other module may name it."""

__version__ = "0.1.0"
