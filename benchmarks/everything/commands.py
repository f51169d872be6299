"""Which benchmarks need nothing but a CPU and the extra ``train``, and what the others need."""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """A command that runs on every machine."""

    name: str  # of the package
    arguments: tuple[str, ...] = ()
    # A small case that takes about a minute; None: there is none.
    quick: tuple[str, ...] | None = None
    # About, on two cores, by the docstrings and by the seconds in results/; None: unknown.
    hours: float | None = None


class LeftOut(NamedTuple):
    """A command that needs more."""

    name: str
    arguments: tuple[str, ...]
    needs: str


MNIST = ("--task", "MNIST", "--only")

# The short ones first, so that what is broken shows early. All training data are prepared by
# ``python -m train.data prepare``.
HERE = (
    Benchmark("validate", quick=("--only", "qsgd"), hours=0.01),
    Benchmark("error_feedback_steps", quick=(), hours=0.01),
    Benchmark("memories", quick=("--only", "memory"), hours=0.1),
    Benchmark(
        "scaling",
        ("--measure-local",),
        quick=("--measure-local", "--only", "dense", "--repeats", "1"),
        hours=0.1,
    ),
    Benchmark("scaling", hours=0.1),
    Benchmark("layer_levels", quick=("--task", "simple_cnn on MNIST"), hours=0.1),
    Benchmark("step_profile", quick=("--task", "CNN", "--rounds", "1"), hours=0.1),
    Benchmark("unsent", quick=(*MNIST, "block_top_k"), hours=0.3),
    Benchmark("scheme_survey", quick=("--only", "qsgd"), hours=0.4),
    Benchmark("distortion", quick=(*MNIST, "qsgd(4)")),
    Benchmark("convergence", quick=(*MNIST, "qsgd(4)"), hours=0.5),
    Benchmark(
        "compiled",
        ("--platform", "cpu"),
        quick=("--platform", "cpu", "--workers", "8", "--only", "dense", "--again"),
        hours=0.5,
    ),
    Benchmark("compression", quick=("--data", "1M", "--only", "power_sgd(2)", "--repeats", "1")),
    # Without root it leaves out the scenarios of disks and links.
    Benchmark("faults", quick=("--only", "killed_1"), hours=0.8),
    Benchmark("adaptive_levels", hours=2),
    Benchmark("adaptive_levels", ("--over-time",)),
    Benchmark(
        "period_lengths", quick=("--workers", "4", "--period", "300", "--seeds", "0"), hours=1
    ),
    Benchmark("period_schemes", quick=("--only", "no_loco", "--seeds", "0"), hours=0.4),
    Benchmark("sharded_training", hours=1),
    Benchmark("training", quick=("--only", "digits"), hours=2),
    Benchmark(
        "learning_rates",
        quick=("--only", "mnist", "--rate", "0.1", "--seeds", "0"),
        hours=2.5,
    ),
)

ROOT = "root, for network namespaces"
COMPILERS = "libtpu or JAX's CUDA plugin, in another environment"
LEFT_OUT = (
    LeftOut("changing_link", (), ROOT),
    LeftOut("compiled", ("--platform", "tpu", "gpu"), COMPILERS),
    LeftOut("compile_profile", (), COMPILERS),
    LeftOut("compiled_sharded", (), COMPILERS),
    LeftOut("gpu", (), "a GPU"),
    LeftOut("network", (), f"{ROOT}; PyTorch to compare with"),
    LeftOut("period_bytes", (), ROOT),
    LeftOut("period_overlap", (), COMPILERS),
    LeftOut("period_seconds", (), ROOT),
    LeftOut("plan", ("--measure",), ROOT),
    LeftOut("ddp_settings", (), f"{ROOT}; PyTorch"),
    LeftOut("process_settings", (), f"{ROOT}; PyTorch to compare with"),
    LeftOut("regression", ("--since", "COMMIT"), "a commit to compare with"),
    LeftOut("scaling", ("--measure",), ROOT),
    LeftOut("sharded_network", (), ROOT),
    LeftOut("time_to_accuracy", (), f"{ROOT}; PyTorch to compare with"),
    LeftOut("training", ("--only", "resnet18"), "an accelerator"),
)
