"""The programs that are timed cover those of `benchmarks.period_lengths`."""

import json

import pytest

from benchmarks.period_lengths.runs import COMPRESSORS, Run
from benchmarks.period_seconds.__main__ import CHECKED, PERIOD, Options, runs


def test_gradients_and_every_compressor_are_timed():
    timed = [(run.period, run.compressor) for run in runs(4)]
    assert timed == [(None, "dense()"), *((PERIOD, one) for one in COMPRESSORS)]
    assert set(CHECKED) <= set(timed)


def test_a_run_travels_to_its_workers_as_text():
    for run in runs(8):
        assert Run(*json.loads(json.dumps(run))).arguments() == run.arguments()


def test_a_number_of_hosts_that_cannot_be_made_is_refused():
    with pytest.raises(ValueError, match="workers must be 2 to 250"):
        Options(workers=(300,))
