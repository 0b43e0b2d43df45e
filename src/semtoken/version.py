"""The version of semtoken, on the ground floor: everything may say which one it was made with."""

__version__ = "0.1.0"
