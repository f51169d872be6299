"""The settings of PyTorch's DDP: for each task and method the fastest that we found."""

from typing import NamedTuple


class Ddp(NamedTuple):
    """What a user of `DistributedDataParallel` may choose."""

    buckets: int | None = None  # of one size; None: DDP's, one of 1 MiB and others of 25
    set_to_none: bool = False  # gradients are allocated in each step, not cleared
    batched: bool = False  # the PowerSGD hook orthogonalizes matrices of one shape together

    def __str__(self) -> str:
        """As in the files of results."""
        of_buckets = {None: "buckets by default", 1: "one bucket"}
        words = [
            of_buckets.get(self.buckets, f"{self.buckets} buckets"),
            "gradients set to None" if self.set_to_none else "gradients cleared",
            *(["matrices of one shape together"] if self.batched else []),
        ]
        return ", ".join(words)


# The fastest of `benchmarks.ddp_settings`, whose `fastest` finds it in the file of results.
_BATCHED = Ddp(1, batched=True)
FASTEST = {
    ("transformer 0.4M", "DDP, dense"): Ddp(16),
    ("transformer 0.4M", "DDP, fp16 hook"): Ddp(4),
    ("transformer 0.4M", "DDP, PowerSGD hook, rank 4"): _BATCHED,
    ("transformer 4M", "DDP, dense"): Ddp(16),
    ("transformer 4M", "DDP, fp16 hook"): Ddp(16),
    ("transformer 4M", "DDP, PowerSGD hook, rank 4"): Ddp(1),
    ("CNN on MNIST", "DDP, dense"): Ddp(64),
    ("CNN on MNIST", "DDP, fp16 hook"): Ddp(16),
    ("CNN on MNIST", "DDP, PowerSGD hook, rank 4"): Ddp(1),
    ("resnet20 on CIFAR-10", "DDP, dense"): Ddp(16),
    ("resnet20 on CIFAR-10", "DDP, fp16 hook"): Ddp(64),
    ("resnet20 on CIFAR-10", "DDP, PowerSGD hook, rank 4"): _BATCHED,
}


def fastest(task: str, method: str) -> Ddp:
    """The settings of a method; where none were compared, those that work.

    The PowerSGD hook needs one bucket: those of several mix up their all-reduces over gloo, and the
    run aborts.
    """
    return FASTEST.get((task, method), Ddp(1 if "PowerSGD" in method else None))
