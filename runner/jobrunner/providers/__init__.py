"""The edges of the runner: mail, HTTP, virus scanner, storage; each behind a small Protocol."""
