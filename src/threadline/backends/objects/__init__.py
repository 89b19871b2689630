"""Where objects of a cold tier are: a folder, or an object store; with a cache on disk before it."""
