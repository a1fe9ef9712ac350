"""The only SQL of the runner: one Python function for each function of schema mdm."""
