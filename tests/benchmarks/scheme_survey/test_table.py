"""The table of the survey, and its page."""

from benchmarks.scheme_survey.runs import names
from benchmarks.scheme_survey.table import page, table

ROW = {
    **{
        "scheme": "top_k",
        "compressor": "error_feedback(top_k(0.05))",
        "test_accuracy": "0.9617",
        "workers": "4",
    },
    **{"bytes_per_step": "120000.0", "dense_bytes_per_step": "1241544.0", "seconds": "9.7"},
    **{"machine": "a machine", "python": "3.11.7", "jax": "0.10.2"},
}


def test_a_row_of_the_table():
    assert table([ROW]) == [
        {
            "compressor": "`error_feedback(top_k(0.05))`",
            "test accuracy": "96.17 %",
            "bytes sent per worker and step": "120,000",
            "times fewer": "10.3",
            "seconds": "10",
        }
    ]


def test_the_page_lists_missing_schemes():
    assert "Not measured yet: dense, one_phase," in page([ROW])
    assert "Not measured" not in page([ROW | {"scheme": name} for name in names()])
