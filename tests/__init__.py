"""A package only so that `tests.servers` has one name everywhere; the folders of tests below are none."""
