"""mdm jobs: the thin runner around the job functions in schema mdm."""

__version__ = "0.1.0"
