"""`python -m imperfed` and the `imperfed` command."""

from imperfed.cli.app import main

if __name__ == "__main__":
    main()
