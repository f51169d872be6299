"""Flags of XLA with which a program compiles in less than half the time, and runs slower.

The tests compile thousands of small programs and run each a few times. So LLVM optimises nothing,
the older code generator makes the fusions, and each program stays in one piece. XLA's own passes
are the same, and so is every count of bytes and collectives.
"""

import jax

FAST_COMPILATION = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
        # Newer jaxlib has no other generator than the new one, and refuses flags it does not know.
        *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)
