"""The tables of `docs/hosts.md`: what compression costs on the GPUs that were measured, and what
training reached there.
"""

from benchmarks.common import results
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Row, read_csv
from benchmarks.gpu.steps import TRAINED

DATA = {"25M": "one matrix of 25 million entries", "resnet50": "161 arrays of a ResNet-50"}


def write_tables() -> None:
    """Rewrites the tables from the files of all GPUs, if there are any."""
    page = REPOSITORY / "docs" / "hosts.md"
    for name, found in {"gpu": lines(), "gpu training": trained()}.items():
        if found:
            write_between(page, name, markdown(found))


def lines() -> list[Row]:
    """One row for each compressor, data set and GPU, from the local path's rows."""
    files = sorted(results.FOLDER.glob("compression_nvidia*.csv"))
    return [
        line(row) for file in files for row in read_csv(file.name) if row["stage"] == "local path"
    ]


def line(row: Row) -> Row:
    """What the page shows of a row."""
    return {
        "GPU": row["device"].removeprefix("NVIDIA ").split()[0],
        "gradients": DATA.get(row["data"], row["data"]),
        "compressor": f"`{row['compressor']}`",
        "ms": row["median_ms"],
        "from–to, ms": f"{row['min_ms']}–{row['max_ms']}",
        "one pass over memory, ms": row["floor_ms"],
        "PyTorch's hook, ms": row["torch_ms"] or "–",
    }


def trained() -> list[Row]:
    """One row for each training run."""
    return [
        {
            "run": row["step"],
            "compressor": f"`{row['compressor']}`",
            "epochs": row["epochs"],
            "test accuracy, %": f"{100 * float(row['test_accuracy']):.1f}",
            "training loss": f"{float(row['train_loss']):.3f}",
            "bytes of a worker and step": f"{int(row['final_bytes_per_step']):,}",
            "of dense": _part_of_dense(row),
        }
        for row in TRAINED.read()
    ]


def _part_of_dense(row: Row) -> str:
    fewer = int(row["dense_bytes_per_step"]) / int(row["final_bytes_per_step"])
    return f"1/{fewer:.0f}" if fewer > 1 else "1"


if __name__ == "__main__":
    write_tables()
