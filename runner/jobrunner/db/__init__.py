"""The only SQL of the runner: one function per mdm function, and the sessions that carry them."""
