"""An OpenAI-compatible API over a model in this process, with the exact uncertainty of every choice.

    app.py -> requests.py -> service.py -> worker.py -> engine.py -> replies.py

app.py         the ASGI application: requests read within limits, answered or refused
requests.py    OpenAI's two forms, checked field by field
service.py     a checked request -> prompts and sampling -> its answer
worker.py      the model's thread: requests are answered together as they come
engine.py      what it is asked to do: generations and typed questions, watched step by step
replies.py     answers, whole or as chunks of a stream

Enter by `semtoken serve`; in Python by `serve_app`.
"""
