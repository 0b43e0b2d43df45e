"""An OpenAI-compatible reverse proxy that adds an uncertainty to every choice and changes nothing else."""
