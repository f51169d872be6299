"""The table beside dense, and growth with the workers."""

from benchmarks.compiled.table import growth, launches, starts, table


def row(compressor, workers, sent, temp="2.00", buckets="", flags="default", commit="abc"):
    return {
        **{
            "platform": "cpu",
            "workers": str(workers),
            "compressor": compressor,
            "buckets": buckets,
            "flags": flags,
        },
        **{
            "requested_bytes": str(sent),
            "wire_bytes": str(sent),
            "collectives": "1",
            "temp_copies": temp,
        },
        **{"overlapping": "", "early": "", "backward_between": "", "commit": commit},
    }


def test_each_row_is_compared_with_dense_on_the_same_workers():
    rows = [
        row("dense()", 8, 1000),
        row("sign()", 8, 100, "3.50"),
        row("dense()", 64, 2000),
        row("sign()", 64, 400),
    ]
    assert [one["times_dense"] for one in table(rows)] == ["1.0", "10.0", "1.0", "5.0"]
    assert table(rows)[1]["more_than_dense"] == "1.50"


def test_rows_are_not_compared_with_dense_in_buckets():
    assert table([row("dense()", 8, 1, buckets="4"), row("sign()", 8, 1)])[1]["times_dense"] == ""


def test_rows_of_another_commit_are_not_compared():
    other = {"platform": "h100", "kernels": "925", "loops": "0", "early": "0", "compile_s": "19"}
    rows = [row("dense()", 8, 1, commit="def") | other, row("sign()", 8, 1) | other]
    assert table(rows)[1]["times_dense"] == ""
    assert [one["compressor"] for one in launches(rows)] == ["`dense()`"]
    assert growth([row("sign()", 8, 1), row("sign()", 64, 8, commit="def")]) == []


def test_growth_is_from_8_workers_to_the_most():
    rows = [row("dense()", 8, 100), row("dense()", 64, 150)]
    rows += [
        row("sign()", 2, 10),
        row("sign()", 8, 70),
        row("sign()", 64, 630),
        row("power_sgd(2)", 8, 100),
    ]
    dense, sign = growth(rows)
    assert (dense["workers"], dense["times_bytes"], dense["of_dense"]) == (
        "8 to 64",
        "1.500",
        "1.000",
    )
    assert (sign["times_requested"], sign["times_bytes"], sign["of_dense"]) == (
        "9.000",
        "9.000",
        "6.000",
    )


def test_launches_are_those_of_gpu_programs_beyond_dense():
    on_gpus = {"platform": "h100", "kernels": "925", "loops": "0", "compile_s": "19"}
    rows = [
        row("sign()", 8, 1),
        row("dense()", 8, 1) | on_gpus,
        row("sign()", 8, 1, "2.50") | on_gpus | {"kernels": "975", "loops": "1"},
        row("sign()", 8, 1, buckets="4") | on_gpus,
    ]
    dense, sign = launches(rows)
    assert (dense["GPUs"], dense["beyond dense"]) == ("8 H100", 0)
    assert (sign["beyond dense"], sign["loops"]) == (50, "1")
    assert sign["copies of the gradients beyond dense"] == "0.50"


def test_starts_are_those_of_gpu_programs_that_were_compiled_in_buckets():
    on_gpus = {"platform": "h100", "kernels": "925", "early": "0"}
    asynchronous = {"flags": "asynchronous", "early": "7", "collectives": "9"} | {
        "backward_between": "0.500"
    }
    rows = [
        row("dense()", 8, 1) | on_gpus,
        row("qsgd(4)", 8, 1) | on_gpus,
        row("sign()", 8, 1, "2.50") | on_gpus,
        row("sign()", 8, 1, "3.00", buckets="16") | on_gpus | asynchronous,
    ]
    whole, in_buckets = starts(rows)
    assert (whole["buckets"], whole["flags"]) == ("none", "none")
    assert (in_buckets["buckets"], in_buckets["flags"]) == ("16 MiB", "as above")
    assert in_buckets["start during the backward pass"] == "7"
    assert in_buckets["of the backward pass between start and end"] == "50.0 %"
    assert in_buckets["copies of the gradients beyond dense"] == "1.00"
