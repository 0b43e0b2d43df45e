"""An OpenAI-compatible API over a transformers model in process, with the exact uncertainty of every choice."""
