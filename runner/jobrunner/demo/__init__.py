"""Real master data for `bin/run` and the tests: airports and cities of the world as ddm_entity rows (extra `demo`)."""
