"""A reverse proxy that adds an uncertainty to every choice and changes nothing else.

    client -> app.py                -> asking.py  -> the server behind
    client <- relay.py or stream.py <- scoring.py <-'

app.py          the ASGI application: `ProxyHandler` answers one request, and all that can go wrong ends there
client.py       the client's request and the answer to it; paths.py what its path may mean
upstream.py     requests to the upstream, and its answers (unpacking.py); keys.py hides keys that errors repeat
asking.py       which requests are scored, and what the upstream is asked for
relay.py        a whole answer on its way back, untouched or with scores; stream.py one that comes in events
scoring.py      scores each choice (stream_scoring.py as it comes); editing.py puts its block in and takes out what only
                we asked for
decisions.py    typed questions, passed on to the upstream, else asked as texts (text_questions.py)
routes.py       the endpoints that the upstream lacks; memory.py remembers them and other findings for a while
distributions.py, upstream_tokenizer.py   what is found out about the upstream: what its numbers are, and its tokens
settings.py, metrics.py   what the proxy is given, and what it shows to Prometheus

No module here names a field of an API: `semtoken.replies.formats` says how to ask each one and where everything
stands in its replies.

Enter by `semtoken proxy`; in Python by `proxy_app`.
"""
