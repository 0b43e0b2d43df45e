"""Comparing uncertainties on questions with known answers: record once, score by every method, put it in a table."""
