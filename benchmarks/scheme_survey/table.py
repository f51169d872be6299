"""The table of the survey, and its page."""

from benchmarks.common.pages import markdown
from benchmarks.scheme_survey.runs import names


def table(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The columns of the page."""
    return [
        {
            "compressor": f"`{row['compressor']}`",
            "test accuracy": f"{100 * float(row['test_accuracy']):.2f} %",
            "bytes sent per worker and step": f"{round(float(row['bytes_per_step'])):,}",
            "times fewer": (
                f"{float(row['dense_bytes_per_step']) / float(row['bytes_per_step']):.1f}"
            ),
            "seconds": f"{float(row['seconds']):.0f}",
        }
        for row in rows
    ]


def page(rows: list[dict[str, str]]) -> str:
    """The table, its machine and versions, and the schemes that are missing."""
    last = rows[-1]
    missing = [name for name in names() if name not in {row["scheme"] for row in rows}]
    without = f" Not measured yet: {', '.join(missing)}." if missing else ""
    where = (
        f"{last['machine']}, shared by {last['workers']} workers; Python {last['python']}, jax"
        f" {last['jax']}."
    )
    return f"{markdown(table(rows))}\n\nOne seed; {where}{without}"
