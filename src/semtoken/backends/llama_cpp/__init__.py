"""llama.cpp in this process, through llama-cpp-python.

model.py    `load_llama_cpp` and `LlamaCppBackend`, the `Backend`; `STC` over it gives scores

Importing this package does not import llama-cpp-python. Tested with llama-cpp-python 0.3.36.
"""

from __future__ import annotations

from semtoken.backends.llama_cpp.model import LlamaCppBackend, check_spelling, load_llama_cpp

__all__ = ["LlamaCppBackend", "check_spelling", "load_llama_cpp"]
