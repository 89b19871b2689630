"""A run: which tasks are due, where they run, and how their writes become the next step."""
