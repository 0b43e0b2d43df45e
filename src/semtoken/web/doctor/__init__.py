"""An examination of an OpenAI-compatible endpoint: what it gives that semtoken can use.

asking.py        an address, a question   -> a request in each shape, the reply read
examination.py   a server                 -> what it gives, one question after the other
numbers.py       two replies              -> raw or processed, repeated or excluded entries, how exact
engines.py       what it says of itself   -> the engine, and what can be changed there
diagnosis.py     all of that as records; verdicts.py has what it means for semtoken, and what to change

Enter by `semtoken doctor` or `examine(base_url)`.
"""

from __future__ import annotations

from semtoken.web.doctor.diagnosis import Diagnosis, Finding
from semtoken.web.doctor.examination import examine

__all__ = ["Diagnosis", "Finding", "examine"]
