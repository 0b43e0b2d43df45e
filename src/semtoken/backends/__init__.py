"""Engines at the edge: each module turns one engine's output into the core's inputs, and imports it itself."""
