"""The cold tier: which chunks go to objects, how they get there and back, and which objects are not needed any more."""
