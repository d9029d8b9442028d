"""The commands, a file for each group of them; `cli.py` puts them together."""
