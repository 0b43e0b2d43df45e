"""An OpenAI-compatible API over a model in this process, with the exact uncertainty of every choice.

    app.py -> requests.py -> service.py -> worker.py -> engine.py -> service.py -> replies.py

app.py         the ASGI application: requests read within limits, answered or refused
requests.py    requests in OpenAI's two forms, checked field by field
service.py     a checked request -> prompts and sampling -> its answer
replies.py     answers in these forms, whole or as chunks of a stream
orders.py      what the model's thread is asked for, and what it reports of it: plain records
worker.py      the model's thread, and the queues between it and the server
engine.py      generations, answered together as they come, watched step by step
open_decisions.py  typed questions, read between the steps of the answers

Enter by `semtoken serve`; in Python by `serve_app`.
"""
