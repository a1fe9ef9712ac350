"""Sets a process's wall clock seven hours ahead: what Python reads of it."""

import time

_real = time.time
time.time = lambda: _real() + 7 * 3600
