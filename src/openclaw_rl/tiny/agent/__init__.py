"""The small agent model: its exercises in four settings, scripted demonstrations of them, and its recipe."""
