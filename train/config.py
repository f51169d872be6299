"""The settings of a run: one dataclass, filled from a YAML file and then from the command line."""

import dataclasses
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import tyro

from train.config_file import read_yaml
from train.help_topics import usage


@dataclasses.dataclass(frozen=True)
class Config:
    """Every setting of a run. A field is a key of a YAML file and an option of the command line."""

    dataset: str = "digits"
    """Data set: for images digits (part of scikit-learn), mnist or cifar10; for text
    tiny_shakespeare.
    """
    data_dir: str | None = None
    """Folder of the prepared TFDS data sets; None means the environment variable TFDS_DATA_DIR, or
    ~/tensorflow_datasets without it.
    """
    context: int = 64
    """Characters in an example of text, at least 1; ignored for images."""
    evaluate_on: Literal["test", "validation"] = "test"
    """Examples for test_loss and the other test_ metrics. Use validation to choose settings: of
    images it is the last tenth of the training data, which is then not trained on.
    """
    model: str = "simple_cnn"
    """Model: for images simple_cnn, resnet8, resnet20, resnet18 or resnet50; for text lstm or
    transformer.
    """
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the model computes in; float16 has a dynamic loss scale. Parameters, gradients, error
    memories and the loss are always float32.
    """
    width: int = 128
    """Features of a character in a transformer, a multiple of heads."""
    layers: int = 2
    """Blocks of a transformer, at least 1."""
    heads: int = 4
    """Attention heads of a transformer's block, at least 1."""
    scan_layers: bool = False
    """Whether a transformer's blocks are one block in a loop, with the parameters of all in one
    array: many layers compile as fast as one.
    """
    compressor: str = "dense()"
    """How gradients are compressed and averaged, for example "error_feedback(top_k(0.01))"; dense()
    does not compress. auto prints a plan of measured links and steps. Of the compressors that keep
    a fifth of a gradient and are within 5 % of the fastest, it takes the one that keeps most.
    """
    compressor_modules: tuple[str, ...] = ()
    """Python modules with compressors of your own, which compressor may name: with mine it may be
    "error_feedback(mine.outliers(2.0))". They are installed or in the current folder.
    """
    min_compression_rate: float = 2.0
    """An array is sent uncompressed unless its message is this many times smaller, at least 0; 0
    compresses every array.
    """
    bucket_mib: float | None = None
    """MiB of gradients that are sent together, the last layers first, above 0. None sends all
    after the backward pass.
    """
    measure_bandwidth_every_steps: int = 50
    """With the rule bandwidth in adaptive: steps between two measurements of the link, at least 1;
    each sends up to 2 MB.
    """
    optimizer: Literal[
        "sgd",
        "rmsprop",
        "adam",
        "adamw",
        "muon",
        "sign_sgd",
        "dgc",
        "onebit_adam",
        "onebit_lamb",
        "zero_one_adam",
    ] = "sgd"
    """Update rule for the averaged gradient. muon is for the matrices of dense and attention
    layers, with adamw for all else. dgc is sgd with its momentum on each worker, before the
    compressor. onebit_adam, onebit_lamb and zero_one_adam begin with dense steps, and then send
    their momentum by the compressor, which needs an error memory: "error_feedback(sign())".
    """
    momentum: float = 0.9
    """Momentum of sgd, rmsprop and dgc, in [0, 1)."""
    nesterov: bool = True
    """Whether the momentum of sgd, rmsprop and dgc is Nesterov's."""
    freeze_step: int | None = None
    """Dense steps of onebit_adam and onebit_lamb before their variance is frozen, at least 1; for
    zero_one_adam the step from which its variance stays. None lets the optimizer decide.
    """
    masking: bool = True
    """Whether dgc resets the velocity of the entries it has just sent, as in its paper. Arrays sent
    uncompressed keep it.
    """
    clip_norm: float | None = None
    """Largest norm of the averaged gradient, above 0. dgc and the optimizers that send their
    momentum instead clip the gradient of each worker, at clip_norm * sqrt(workers). With period
    each worker's gradient is clipped at clip_norm. sign_sgd has no use for it.
    """
    weight_decay: float = 0.0
    """Weight decay, at least 0 and finite: an L2 gradient for sgd, rmsprop, adam and dgc, otherwise
    decoupled. Biases and normalization layers never decay.
    """
    learning_rate: float = 0.1
    """Peak learning rate, above 0 and finite."""
    warmup_epochs: float = 0.0
    """Epochs of linear warm-up of the learning rate; at least 0, less than epochs."""
    schedule: Literal["constant", "cosine", "step"] = "cosine"
    """Learning rate after the warm-up: constant, cosine decay to 0, or step decay at
    decay_epochs.
    """
    decay_epochs: tuple[float, ...] = ()
    """Epochs at which schedule=step multiplies the learning rate by decay_rate; increasing, above
    warmup_epochs.
    """
    decay_rate: float = 0.1
    """Factor of schedule=step, in (0, 1]."""
    epochs: float = 3.0
    """Passes over the training data, above 0; may be fractional."""
    batch_size: int = 128
    """Examples per step of all workers together; a multiple of the number of workers times fsdp
    times micro_batches.
    """
    micro_batches: int = 1
    """Parts of a worker's batch that are processed one after the other, to save memory; their
    gradients are sent once.
    """
    max_skipped_steps: int = 10
    """The run stops after more than this many skipped steps in a row, at least 0. A step is skipped
    if a gradient is not finite.
    """
    seed: int = 0
    """Seed of parameters, order and augmentation of data, and compressor; from 0 to 2**32 - 1."""
    period: int | None = None
    """Steps that each worker takes by itself, with the optimizer above, between two averages of how
    far the workers have moved; at least 1. The compressor compresses these drifts, once a period.
    None averages gradients in every step.
    """
    outer_optimizer: Literal["sgd", "nesterov"] = "sgd"
    """With period: update rule for the averaged drift. sgd makes the parameters the mean of the
    workers' parameters. nesterov is that of DiLoCo: for long periods and an inner optimizer like
    adamw. With short periods, or a momentum inside, it needs a much smaller rate.
    """
    outer_learning_rate: float | None = None
    """With period: constant learning rate of the outer optimizer, above 0 and finite. None is 1 for
    sgd and 0.7 for nesterov.
    """
    outer_momentum: float = 0.9
    """With outer_optimizer nesterov: its momentum, in [0, 1)."""
    workers: int | None = None
    """Workers in all processes together; None means every device. On a CPU, N makes N virtual
    devices. A run may resume with another number.
    """
    vmap: bool = False
    """Whether the workers share one device, by jax.vmap. Results equal those on as many devices, up
    to rounding. Nothing is sent; bytes are counted as if it were.
    """
    nodes: int | None = None
    """Number of nodes between which hierarchical() compresses; each has an equal part of the
    workers. None: all workers share one network.
    """
    fsdp: int = 1
    """Devices of one worker among which its parameters, optimizer state and rows are split; at
    least 1. Each device compresses its shards, and sends them to its peers in other workers.
    """
    tensor: int = 1
    """Devices of one worker among which the heads and hidden features of a transformer are split;
    at least 1.
    """
    name: str = "run"
    """Name of the run in its log; any text."""
    verbose: bool = False
    """Whether all metrics are printed; the files of the workdir have all of them in any case."""
    log_every_steps: int = 50
    """Steps between two lines of training metrics; at least 1."""
    eval_every_epochs: float = 1.0
    """Epochs between two evaluations, above 0 and finite; the last step is always evaluated. With
    period rounded to whole periods, as checkpoint_every_steps.
    """
    workdir: str | None = None
    """Folder for checkpoints and metrics; the same folder resumes the run. None writes no files."""
    checkpoint_every_steps: int | None = None
    """Steps between two checkpoints, at least 1; None means one epoch. The last step is always
    saved.
    """
    keep_checkpoints: int = 3
    """Number of latest checkpoints to keep, at least 1; with 2 or more a run can recover from a
    damaged one.
    """
    verify_every_steps: int = 1000
    """Steps between two comparisons of all workers' parameters and states, at least 1; they are
    compared before they are saved, too. With period rounded to whole periods.
    """
    coordinator: str | None = None
    """HOST:PORT of process 0, for several processes; None lets JAX detect a cluster,
    such as Slurm, Open MPI or Cloud TPU.
    """
    num_processes: int | None = None
    """Number of processes, with --coordinator or --supervise."""
    process_id: int | None = None
    """Index of this process, from 0 to num_processes - 1, with --coordinator."""
    join_timeout: int = 300
    """Seconds to wait until all processes have started, at least 1."""
    step_timeout: float = 120.0
    """With several processes: seconds without a new step, or without a sign of life of a process,
    after which all end and name it; at least 10.
    """
    supervise: bool = False
    """Whether to start num_processes processes on this machine, and to start them again from the
    last checkpoint when one of them is lost. Needs a workdir.
    """
    min_workers: int | None = None
    """With supervise: go on without lost processes while this many workers are left; None does not
    go on without.
    """
    rejoin_seconds: float = 300.0
    """With min_workers: seconds with fewer processes before all are tried again, above 0."""

    @property
    def bucket_bytes(self) -> int | None:
        """`bucket_mib` in bytes, at least 1."""
        return None if self.bucket_mib is None else max(1, round(self.bucket_mib * 2**20))

    @property
    def devices_per_worker(self) -> int:
        """The devices that share a worker's model."""
        return self.fsdp * self.tensor

    @property
    def transformer_size(self) -> dict[str, Any]:
        """The fields of a transformer that a config sets."""
        return {
            "width": self.width,
            "layers": self.layers,
            "heads": self.heads,
            "scan_layers": self.scan_layers,
        }

    @property
    def loss_scale(self) -> float | None:
        """The first loss scale, which `apply_if_all_finite` adapts; only float16 needs one."""
        return 2.0**15 if self.precision == "float16" else None


def load_config(arguments: Sequence[str]) -> Config:
    """The config of a command line: an optional YAML file first, then options that override it."""
    arguments = list(arguments)
    defaults = Config()
    if arguments and not arguments[0].startswith("-"):
        defaults = Config(**read_yaml(Path(arguments.pop(0)), typing.get_type_hints(Config)))
    # Tyro reads the docstrings of the fields, so --help and this file always agree.
    return tyro.cli(
        Config, args=arguments, default=defaults, description=usage(), prog="python -m train"
    )
