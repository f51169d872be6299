"""The table of `docs/hosts.md`: milliseconds of compression on every GPU that was measured."""

from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import FOLDER, Row, read_csv

DATA = {"25M": "one matrix of 25 million entries", "resnet50": "161 arrays of a ResNet-50"}


def write_table() -> None:
    """Rewrites the table from the files of all GPUs, if there are any."""
    if found := lines():
        write_between(REPOSITORY / "docs" / "hosts.md", "gpu", markdown(found))


def lines() -> list[Row]:
    """One row for each compressor, data set and GPU, from the local path's rows."""
    files = sorted(FOLDER.glob("compression_nvidia*.csv"))
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


if __name__ == "__main__":
    write_table()
