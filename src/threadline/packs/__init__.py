"""Many chunks of one pool in one object: the pack file, and the rows of chunks whose bytes are in one."""
