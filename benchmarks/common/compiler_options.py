"""Options of XLA for programs that hardly run."""

# LLVM optimises nothing. XLA's own passes, which decide on collectives and memory, are unchanged.
QUICK_TO_COMPILE = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
