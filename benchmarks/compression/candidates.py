"""The compressors that are timed."""

from typing import NamedTuple

from benchmarks.common.expressions import example, public_schemes


class Candidate(NamedTuple):
    """A compressor, and how its selection is called if it has one."""

    text: str  # inside error_feedback
    selects: bool = False
    block: int | None = None  # entries searched together; None: the whole array
    peer: str = ""  # PyTorch's counterpart, for `torch_worker`

    @property
    def peer_stage(self) -> str:
        """The stage that does what the peer does."""
        return "selection" if self.selects else "local path"


CHOSEN = [
    Candidate("dense()"),
    Candidate("cast('bfloat16')"),
    Candidate("top_k(0.01)", selects=True, peer="topk 0.01"),
    Candidate("block_top_k(0.01)", selects=True, block=1024),
    Candidate("block_top_k(0.01, inner=qsgd(6))"),
    Candidate("block_max(128)"),
    Candidate("block_max(128, inner=cast('bfloat16'))"),
    *map(Candidate, ("qsgd(4)", "qsgd(8)", "sign()")),
    *(Candidate(f"power_sgd({r})", peer=f"PowerSGD hook, rank {r}") for r in (1, 2, 4)),
    Candidate("acp_sgd(4)"),
    *map(
        Candidate, ("threshold(2.5, capacity=0.01)", "sampled_threshold(0.01)", "row_top_k(0.01)")
    ),
    *map(
        Candidate,
        (
            "column_top_k(0.01)",
            "head_top_k(0.25, heads=8)",
            "rotated(sign())",
            "eden(2)",
            "eden(4)",
            "batched_power_sgd(4)",
        ),
    ),
    Candidate("arc_top_k(0.01)"),
]


# The exact decomposition of 25 million entries takes minutes; it is a reference only.
LEFT_OUT = {"svd"}
# All other compressors, with the arguments of their docstring's example.
OTHERS = (
    {*public_schemes("jaxcompress.compressors"), *public_schemes("jaxcompress.contrib")}
    - LEFT_OUT
    - {one.text.split("(")[0] for one in CHOSEN}
)


CANDIDATES = [*CHOSEN, *(Candidate(example(name)) for name in sorted(OTHERS))]
