"""`python -m semtoken`: the command line, where the command `semtoken` is not on the path."""

from semtoken.cli import main

if __name__ == "__main__":
    main()
