"""Small wrong changes to the code, and whether a test notices: `python -m tests.mutation --help`."""
