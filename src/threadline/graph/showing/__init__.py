"""What people see of a graph and its runs: streams and drawings."""
