"""Doors over HTTP: an OpenAI-compatible server, a reverse proxy, and a probe of endpoints."""
