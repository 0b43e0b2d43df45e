"""Replies of engines and APIs, read into one shape: JSON, client objects, streams."""
