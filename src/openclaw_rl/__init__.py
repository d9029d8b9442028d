"""OpenClaw-RL: serve a model, and let it learn from what happens next.

Importing this package loads neither torch nor a server.
"""

__version__ = "0.1.0"
