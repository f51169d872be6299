"""What a run can be told: one dataclass, filled from a YAML file and then from the command line."""

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import tyro

from train.config_file import read_yaml

USAGE = """Train an image classifier or a language model with compressed gradients.

Usage: python -m train [CONFIG.yaml] [--field value …]. The file gives the defaults shown below, the command line
overrides them. The last line on standard output is one JSON object, the summary of the run."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Every setting of a run; the fields are the keys of a YAML file and the options of the command line."""

    name: str = "run"
    """What the run is called in its log; any text."""
    dataset: str = "digits"
    """Data set: of images digits (ships with scikit-learn), mnist or cifar10; of text tiny_shakespeare."""
    data_dir: str | None = None
    """Folder of the prepared TFDS data sets; None means the environment variable TFDS_DATA_DIR."""
    model: str = "simple_cnn"
    """Model: for images simple_cnn, resnet8, resnet20, resnet18 or resnet50; for text lstm or transformer."""
    context: int = 64
    """Characters in an example of text, at least 1; images have none."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in, float16 with a loss scale that finds its place. Parameters, gradients, error memories
    and the loss are float32 either way."""
    compressor: str = "dense()"
    """How gradients are averaged, as an expression: "error_feedback(top_k(0.01))"; dense() is the baseline."""
    min_compression_rate: float = 2.0
    """An array whose message is not this many times smaller than itself travels dense; 0 sends none so."""
    bucket_mib: float | None = None
    """MiB of gradients that travel together, the last layers' first; above 0. None: all, after the backward pass."""
    optimizer: Literal["sgd", "dgc", "adam", "adamw"] = "sgd"
    """What turns the averaged gradient into a step; dgc is sgd whose momentum is gathered before the compressor."""
    learning_rate: float = 0.1
    """Peak learning rate, per optimizer step; above 0 and finite."""
    momentum: float = 0.9
    """Momentum of sgd and dgc, in [0, 1); adam and adamw keep their own."""
    nesterov: bool = True
    """Whether the momentum of sgd and dgc looks ahead."""
    masking: bool = True
    """Whether entries that dgc has just sent lose their momentum, as in its paper; not in arrays that travel whole."""
    clip_norm: float | None = None
    """Largest norm of the averaged gradient, above 0; dgc clips each worker's part at clip_norm / sqrt(workers)."""
    weight_decay: float = 0.0
    """Decay of the kernels (never of biases and norms): an L2 gradient, for adamw decoupled; at least 0 and finite."""
    warmup_epochs: float = 0.0
    """Epochs over which the learning rate rises linearly from 0; at least 0, less than epochs."""
    schedule: Literal["constant", "cosine", "step"] = "cosine"
    """What the learning rate does after the warm-up: stay, fall to 0 along a cosine, or fall at decay_epochs."""
    decay_epochs: tuple[float, ...] = ()
    """Epochs after which schedule=step multiplies the learning rate by decay_rate; rising, above warmup_epochs."""
    decay_rate: float = 0.1
    """Factor of schedule=step, in (0, 1]."""
    epochs: float = 3.0
    """Passes over the training data, fractions allowed; above 0."""
    batch_size: int = 128
    """Examples per step over all workers together; a multiple of the number of workers."""
    micro_batches: int = 1
    """Parts, one after the other, into which each worker cuts its examples to save memory; it sends once for all."""
    max_skipped_steps: int = 10
    """Steps in a row that may be skipped because a gradient is not finite, before the run stops; at least 0."""
    seed: int = 0
    """Seed of the initial parameters and of the order of the data; from 0 to 2**32 - 1."""
    workers: int | None = None
    """Workers in all processes together; None means every device. On a CPU, N makes N virtual devices."""
    vmap: bool = False
    """Whether the workers share one device, by jax.vmap: many workers on one GPU. The numbers are those of as many
    devices, to rounding, and the bytes are counted as theirs, but nothing is sent."""
    nodes: int | None = None
    """Nodes that hierarchical() compresses between, each an equal part of the workers in the order of processes; None:
    one network joins all workers."""
    workdir: str | None = None
    """Folder for checkpoints and metrics; the same folder again resumes. None writes no files at all."""
    eval_every_epochs: float = 1.0
    """Epochs between two evaluations, above 0 and finite; the last step is always evaluated."""
    checkpoint_every_steps: int | None = None
    """Steps between two checkpoints, at least 1; None means once per epoch. The last step is always saved."""
    log_every_steps: int = 50
    """Steps between two lines of training metrics; at least 1."""
    keep_checkpoints: int = 3
    """How many of the latest checkpoints stay; at least 1 (2 or more allow falling back from a corrupt one)."""
    coordinator: str | None = None
    """HOST:PORT of process 0, for several processes; None lets JAX detect Slurm, Open MPI or Kubernetes."""
    num_processes: int | None = None
    """How many processes train together, with --coordinator."""
    process_id: int | None = None
    """Which of them this one is, from 0 to num_processes - 1, with --coordinator."""


def load_config(arguments: Sequence[str]) -> Config:
    """The config of a command line: `CONFIG.yaml`, if it comes first, and then the options over it."""
    arguments = list(arguments)
    defaults = Config()
    if arguments and not arguments[0].startswith("-"):
        defaults = Config(**read_yaml(Path(arguments.pop(0)), typing.get_type_hints(Config)))
    # Tyro reads the field docstrings from the source, so that --help and this file cannot disagree.
    return tyro.cli(Config, args=arguments, default=defaults, description=USAGE, prog="python -m train")
