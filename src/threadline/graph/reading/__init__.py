"""A thread read and changed from outside a run: state, history, updates, time travel."""
