"""Top-k with error feedback and all-gather in PyTorch, which has none of its own."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from benchmarks.network.torch_messages import Averaging, Message


class TopK:
    """Averages gradients: the largest entries of each array but those of index `sent_dense`.

    Those are sent in one all-reduce. Values travel as float32 and indices as int32, each in one
    all-gather for all arrays.
    """

    def __init__(self, shapes: Sequence[torch.Size], density: float, sent_dense: Sequence[int]):
        self.shapes, self.dense = shapes, list(sent_dense)
        self.compressed = [index for index in range(len(shapes)) if index not in self.dense]
        self.sizes = [shapes[index].numel() for index in self.compressed]
        self.dense_sizes = [shapes[index].numel() for index in self.dense]
        self.kept = [max(1, int(size * density)) for size in self.sizes]
        # One error memory for all arrays, and each array's slice of it.
        self.memory = torch.zeros(sum(self.sizes))
        self.parts = self.memory.split(self.sizes)
        self.mean = torch.zeros_like(self.memory)

    def average(self, grads: list[torch.Tensor]) -> list[torch.Tensor]:
        """Gradients in, average out; entries that are not sent stay in the error memory."""
        indices = self._select(grads)
        values = self.memory[indices]
        self.memory[indices] = 0
        workers = dist.get_world_size()
        all_values = [torch.empty_like(values) for _ in range(workers)]
        all_indices = [torch.empty_like(indices) for _ in range(workers)]
        dist.all_gather(all_values, values)
        dist.all_gather(all_indices, indices)
        dense = torch.cat([grads[index].ravel() for index in self.dense])
        dist.all_reduce(dense)
        self.mean.zero_()
        for one, where in zip(all_values, all_indices, strict=True):
            self.mean.index_add_(0, where, one)
        return self._apart(self.mean.div_(workers), dense.div_(workers))

    def _select(self, grads: list[torch.Tensor]) -> torch.Tensor:
        """Adds the gradients to the error memory.

        Returns the indices of the largest entries of each array.
        """
        found, start = [], 0
        for part, index, size, kept in zip(
            self.parts, self.compressed, self.sizes, self.kept, strict=True
        ):
            part += grads[index].ravel()
            found.append(part.abs().topk(kept, sorted=False).indices.int() + start)
            start += size
        return torch.cat(found)

    def _apart(self, mean: torch.Tensor, dense: torch.Tensor) -> list[torch.Tensor]:
        """The averages as arrays of their own shapes, without a copy."""
        flat = dict(zip(self.compressed, mean.split(self.sizes), strict=True))
        flat |= zip(self.dense, dense.split(self.dense_sizes), strict=True)
        return [flat[index].view(shape) for index, shape in enumerate(self.shapes)]


def top_k(grads: list[torch.Tensor], density: float) -> Averaging:
    """The method for the benchmark: the same gradients at every step."""
    norms_and_biases = [index for index, x in enumerate(grads) if x.ndim <= 1]
    compressor = TopK([x.shape for x in grads], density, norms_and_biases)
    kept, dense = sum(compressor.kept), sum(compressor.dense_sizes)
    messages = [
        Message("all_gather", torch.float32, kept),
        Message("all_gather", torch.int32, kept),
        Message("all_reduce", torch.float32, dense),
    ]
    return Averaging({"step": lambda: compressor.average(grads)}, messages)
