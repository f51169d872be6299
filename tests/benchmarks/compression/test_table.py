"""Rows of the file, and the printed table."""

from benchmarks.common import results as csv_files
from benchmarks.compression.table import results, row, shown

TIMES = {
    "x + 1": [1.0, 2.0, 1.0],
    "selection": [3.0, 6.0, 3.0],
    "local path": [8.0, 8.0, 8.0],
    "torch": [6.0, 12.0, 6.0],
}
ABOUT = {"data": "1M", "compressor": "top_k(0.01)", "torch": "2.13.0", "bits_per_entry": "0.43"}
ABOUT |= {"peer": "topk 0.01", "peer_stage": "selection"}


def test_ratios_are_to_the_floor_and_for_selection_to_torch():
    selection, path = (row(stage, TIMES, 2.5, ABOUT) for stage in ("selection", "local path"))
    assert (selection["times_floor"], selection["times_torch"], selection["torch"]) == (
        "3.0",
        "0.500",
        "2.13.0",
    )
    assert (path["times_floor"], path["times_torch"], path["torch"], path["temp_copies"]) == (
        "8.0",
        "",
        "",
        "2.50",
    )


def test_new_rows_replace_those_of_the_same_stage_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "FOLDER", tmp_path)
    old = [row(stage, TIMES, 1, ABOUT) for stage in ("local path", "selection")]
    gone = {**old[0], "compressor": "old()"}
    csv_files.write_csv(results("cpu").name, [*old, gone])
    new = [row("selection", TIMES, 9, ABOUT), {**old[0], "data": "10M"}]
    rows = results("cpu").merged(new)
    assert [(each["data"], each["stage"], each["temp_copies"]) for each in rows] == [
        ("1M", "selection", "9.00"),
        ("1M", "local path", "1.00"),
        ("10M", "local path", "1.00"),
    ]


def test_a_compressor_is_one_line_with_a_dash_for_missing_stages():
    rows = [row(stage, TIMES, 2.5, ABOUT) for stage in ("selection", "local path")]
    (line,) = shown([each | {"threads": "1"} for each in rows])
    assert line["selection, ms"] == "3.00 (0.500 of torch's 6.00)"
    assert (line["encode, ms"], line["local path, ms"], line["× floor"]) == ("–", "8.00", "8.0")
