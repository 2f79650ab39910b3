"""``python -m koord``: the command line, for images without a script directory."""

from koord.cli.main import main

if __name__ == "__main__":
    main()
