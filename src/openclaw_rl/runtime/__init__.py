"""Builds the parts of an installation and runs its stages concurrently."""
