"""The beginning of ``python -m train --help``: what the program does, and its options by topic."""

import textwrap

# The help joins lines, but not paragraphs, nor lines that begin with a space.
USAGE = """Train an image classifier or a language model with compressed gradients.

Usage: python -m train [CONFIG.yaml] [--field value …]

Options override the file; the defaults below are those of the file, if one is given.

The last line on standard output is the summary of the run, as one JSON object.

Options by topic, in the order of the list below:"""

# Every field of the config, in its order.
TOPICS: dict[str, tuple[str, ...]] = {
    "data": ("dataset", "data_dir", "context", "evaluate_on"),
    "model": ("model", "precision", "width", "layers", "heads", "scan_layers"),
    "compression": (
        "compressor",
        "compressor_modules",
        "min_compression_rate",
        "bucket_mib",
        "measure_bandwidth_every_steps",
    ),
    "optimizer": (
        "optimizer",
        "momentum",
        "nesterov",
        "freeze_step",
        "masking",
        "clip_norm",
        "weight_decay",
    ),
    "learning rate": ("learning_rate", "warmup_epochs", "schedule", "decay_epochs", "decay_rate"),
    "steps": ("epochs", "batch_size", "micro_batches", "max_skipped_steps", "seed"),
    "periods": ("period", "outer_optimizer", "outer_learning_rate", "outer_momentum"),
    "workers": ("workers", "vmap", "nodes", "fsdp", "tensor"),
    "log": ("name", "verbose", "log_every_steps", "eval_every_epochs"),
    "checkpoints": ("workdir", "checkpoint_every_steps", "keep_checkpoints", "verify_every_steps"),
    "processes": (
        "coordinator",
        "num_processes",
        "process_id",
        "join_timeout",
        "step_timeout",
        "supervise",
        "min_workers",
        "rejoin_seconds",
    ),
}


def usage() -> str:
    """The text above the list of options."""
    return "\n".join([USAGE, *(topic_lines(topic, fields) for topic, fields in TOPICS.items())])


def topic_lines(topic: str, fields: tuple[str, ...]) -> str:
    """The options of one topic, in lines of at most 76 columns that begin with spaces."""
    options = " ".join(f"--{field.replace('_', '-')}" for field in fields)
    widest = max(map(len, TOPICS))
    return textwrap.fill(
        options,
        76,
        initial_indent=f"  {topic:<{widest}}  ",
        subsequent_indent=" " * (widest + 4),
        break_on_hyphens=False,
    )
