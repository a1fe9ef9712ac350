"""The histograms are those of prometheus_client, taken in more quickly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest

from jobrunner.histograms import Histograms
from jobrunner.metrics import RUN_BUCKETS

# Whole quarters: many lie on a bound, and the order of the additions does not show in the sum.
VALUES = st.lists(st.lists(st.integers(0, 20_000).map(lambda n: n / 4), max_size=9))


@given(VALUES)
def test_histograms_expose_what_prometheus_client_would(batches: list[list[float]]) -> None:
    disable_created_metrics()
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    reference = Histogram("seconds", "Text.", ("kind",), registry=theirs, buckets=RUN_BUCKETS)
    reference.labels("idle")
    histograms = Histograms("seconds", "Text.", RUN_BUCKETS, ("idle", "busy"))
    ours.register(histograms)
    reference.labels("busy")
    for batch in batches:
        histograms.observe("busy", batch)
        for value in batch:
            reference.labels("busy").observe(value)
    assert generate_latest(ours) == generate_latest(theirs)
