"""Ask real engines and hold each number that semtoken reads against the same weights in transformers.

    python -m tests.engines.held llama-server --gguf model.gguf --checkpoint FOLDER --program llama-server
    python -m tests.engines.held vllm --checkpoint FOLDER
    python -m tests.engines.held --table

requests.py    what is asked, in each engine's dialect
starting.py    the engines, started on the loopback
own_numbers.py the model's own log-probabilities, raw and processed
exchanges.py   an exchange: its reply, the tokens in it, what semtoken reads, the numbers beside it
table.py       all recorded exchanges -> benchmarks/engines-held.md

Exchanges go to tests/replies/engines, where the default tests replay them.
"""
