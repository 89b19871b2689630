"""Each operation once: coroutines over the Backend port, and the pure functions that decide for them."""
