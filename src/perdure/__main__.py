"""`python -m perdure` is the command line."""

from perdure.cli.main import main

if __name__ == "__main__":
    main()
