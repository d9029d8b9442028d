"""`python -m openclaw_rl` is the command `openclaw-rl`."""

from openclaw_rl.cli import main

if __name__ == "__main__":
    main()
