"""Everything that speaks HTTP: a server, a reverse proxy, a check of endpoints, and the page that shows scores.

serve/     an OpenAI-compatible API over a model in this process, with exact scores
proxy/     an OpenAI-compatible reverse proxy that adds scores to what another server answers
doctor/    what an endpoint gives that semtoken can use
page/      scored answers for people, served or as one file

Enter by the commands `semtoken serve`, `proxy` and `doctor`, and by `check -o page.html`. The modules here are what the
servers share: running.py (uvicorn), callers.py (who may call), limits.py and connections.py (how much), incoming.py
(bodies, and clients who leave), calibrators.py (exchanged at run time), recorder.py and review.py (the journal),
wire.py (what is said on the wire), block.py (the `semtoken` block of a choice).
"""
