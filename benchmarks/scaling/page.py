"""The page of the scaling model, from the files."""

import statistics
from collections.abc import Sequence

from benchmarks.common.expressions import DENSE
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Row, grouped, read_csv
from benchmarks.hosts.namespaces import readable

PAGE = REPOSITORY / "docs" / "scaling.md"
FILE, ERRORS_FILE, CHECKS_FILE = "scaling.csv", "scaling_errors.csv", "scaling_checks.csv"
SHOWN_WORKERS, SHOWN_GBIT = ("8", "16", "64", "256", "1024"), ("0.1", "1", "10", "100")


def write_page() -> None:
    """Writes the section of docs/scaling.md."""
    rows, found, checks = map(read_csv, (FILE, ERRORS_FILE, CHECKS_FILE))
    columns = list(found[0])[: list(found[0]).index("worst there") + 1]
    parts = [
        markdown(best(rows)),
        "The model of each collective, and its errors. It is fitted to 2 and 4 hosts and three of"
        " five sizes, and checked on the other sizes and on 8 hosts:",
        markdown([{column: row[column] for column in columns} for row in found]),
        "The model beside the measured averages of [network.md](network.md), to which it was not"
        " fitted. *Error*: the median of the absolute relative errors:",
        markdown(summary(checks)),
        sentence(checks),
    ]
    write_between(PAGE, "scaling", "\n\n".join(parts))


def best(rows: Sequence[Row]) -> list[Row]:
    """The fastest compressor of the model for each number of workers and rate."""
    lines = []
    for workers in SHOWN_WORKERS:
        line = {"workers": workers}
        for gbit in SHOWN_GBIT:
            mine = [row for row in rows if (str(row["workers"]), row["gbit"]) == (workers, gbit)]
            if mine:
                fastest = min(mine, key=lambda row: float(row["step_ms"]))
                name = str(fastest["compressor"]).removeprefix("error_feedback(")
                name = name[:-1] if name != fastest["compressor"] else name
                faster = float(fastest["times_dense"])
                line[f"{gbit} Gbit/s"] = f"`{name}`, {faster:.1f}×"
        lines.append(line)
    return [line for line in lines if len(line) > 1]


def summary(checks: Sequence[Row]) -> list[Row]:
    """The errors for each number of hosts and rate, and those of dense averages alone."""
    return [
        {
            "hosts": workers,
            "rate": readable(rate),
            "averages": len(errors(mine, "communication_error")),
            "communication: error": percent(errors(mine, "communication_error")),
            "worst": worst(errors(mine, "communication_error")),
            "whole averages": len(errors(mine, "average_error")),
            "whole average: error": percent(errors(mine, "average_error")),
            "worst of them": worst(errors(mine, "average_error")),
            "dense": worst(
                errors([row for row in mine if row["method"] == DENSE], "average_error")
            ),
        }
        for (workers, rate), mine in grouped(checks, ("workers", "rate")).items()
    ]


def sentence(checks: Sequence[Row]) -> str:
    """The errors of the model in one sentence. It has the compression of some methods only."""
    communication, whole = (
        errors(checks, f"{part}_error") for part in ("communication", "average")
    )
    return (
        f"For the communication of {len(communication)} averages the model was"
        f" {percent(communication)} off in the median (at worst {worst(communication)}), and for"
        f" the {len(whole)} of them whose compression it has too, {percent(whole)} (at worst"
        f" {worst(whole)})."
    )


def errors(rows: Sequence[Row], column: str) -> list[float]:
    """The relative errors in percent, where there are any."""
    return [float(row[column]) for row in rows if row[column] != ""]


def percent(found: Sequence[float]) -> str:
    """The median of the absolute errors."""
    return f"{statistics.median(map(abs, found)):.0f} %" if found else "–"


def worst(found: Sequence[float]) -> str:
    """The error farthest from zero, with its sign."""
    return f"{max(found, key=abs):+.0f} %".replace("-", "−") if found else "–"
