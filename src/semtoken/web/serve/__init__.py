"""An OpenAI-compatible API over a model in this process, with the exact uncertainty of every choice.

    app.py -> requests.py -> service.py -> engine.py -> requests.py

app.py         the ASGI application: requests read within limits, answered or refused
requests.py    OpenAI's two forms: requests, checked field by field, and answers, whole or as chunks of a stream
service.py     a checked request -> prompts and sampling -> its answer
engine.py      the model's thread: generations and typed questions, answered together as they come, watched step by step

Enter by `semtoken serve`; in Python by `serve_app`.
"""
