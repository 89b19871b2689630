"""Promises of what stands beside checkpoints: named records, items of a Store, entries of a Cache."""
