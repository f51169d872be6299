"""Top-k with error feedback and all-gather in PyTorch, as its users write it: PyTorch itself has none."""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from benchmarks.torch_messages import Averaging, Message


class TopK:
    """Averages gradients: the largest entries of each kernel and matrix; norms and biases dense, in one all-reduce.

    Values travel as float32 and places as int32, each in one all-gather for all arrays.
    """

    def __init__(self, shapes: Sequence[torch.Size], density: float):
        self.shapes = shapes
        self.places = [place for place, shape in enumerate(shapes) if len(shape) > 1]
        self.rest = [place for place, shape in enumerate(shapes) if len(shape) <= 1]
        self.sizes = [shapes[place].numel() for place in self.places]
        self.rest_sizes = [shapes[place].numel() for place in self.rest]
        self.kept = [max(1, int(size * density)) for size in self.sizes]
        # One memory for all arrays, and each array's part of it.
        self.memory = torch.zeros(sum(self.sizes))
        self.parts = self.memory.split(self.sizes)
        self.mean = torch.zeros_like(self.memory)

    def average(self, grads: list[torch.Tensor]) -> list[torch.Tensor]:
        """Gradients in, average out; what was not sent stays in the memory."""
        places = self._select(grads)
        values = self.memory[places]
        self.memory[places] = 0
        workers = dist.get_world_size()
        all_values = [torch.empty_like(values) for _ in range(workers)]
        all_places = [torch.empty_like(places) for _ in range(workers)]
        dist.all_gather(all_values, values)
        dist.all_gather(all_places, places)
        rest = torch.cat([grads[place] for place in self.rest])
        dist.all_reduce(rest)
        self.mean.zero_()
        for one, where in zip(all_values, all_places, strict=True):
            self.mean.index_add_(0, where, one)
        return self._apart(self.mean.div_(workers), rest.div_(workers))

    def _select(self, grads: list[torch.Tensor]) -> torch.Tensor:
        """Adds the gradients to the memory, and gives the places of each part's largest entries in it."""
        found, start = [], 0
        for part, place, size, kept in zip(self.parts, self.places, self.sizes, self.kept, strict=True):
            part += grads[place].ravel()
            found.append(part.abs().topk(kept, sorted=False).indices.int() + start)
            start += size
        return torch.cat(found)

    def _apart(self, mean: torch.Tensor, rest: torch.Tensor) -> list[torch.Tensor]:
        """The averages as arrays of their own shapes, without a copy."""
        flat = dict(zip(self.places, mean.split(self.sizes), strict=True))
        flat |= zip(self.rest, rest.split(self.rest_sizes), strict=True)
        return [flat[place].view(shape) for place, shape in enumerate(self.shapes)]


def top_k(grads: list[torch.Tensor], density: float) -> Averaging:
    """The benchmark's way: the same gradients at every step."""
    compressor = TopK([x.shape for x in grads], density)
    kept, rest = sum(compressor.kept), sum(compressor.rest_sizes)
    messages = [
        Message("all_gather", torch.float32, kept),
        Message("all_gather", torch.int32, kept),
        Message("all_reduce", torch.float32, rest),
    ]
    return Averaging({"step": lambda: compressor.average(grads)}, messages)
