"""The local engine: continuous batching over transformers models in a child process. docs/decisions/0002 says why."""
