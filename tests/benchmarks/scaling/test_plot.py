"""The plots are drawn from the model's rows."""

from benchmarks.scaling.plot import plot_map, plot_steps


def row(compressor, workers, gbit, times_dense):
    step = 100 / times_dense
    about = {
        "compressor": compressor,
        "workers": workers,
        "gbit": gbit,
        "compute_ms": 50,
        "device": "cpu",
    }
    return about | {"step_ms": step, "times_dense": times_dense, "efficiency": 50 / step}


ROWS = [
    row(compressor, workers, gbit, 1 if compressor == "dense()" else 10 / workers)
    for compressor in ("dense()", "one_phase(sign())")
    for workers in (2, 8, 32)
    for gbit in ("0.1", "1")
]


def test_pictures_are_written(tmp_path):
    for plot in (plot_steps, plot_map):
        assert plot(ROWS, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
