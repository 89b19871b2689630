"""Where records live: the port, and one module per kind of storage."""
