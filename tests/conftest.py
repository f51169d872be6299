"""Eight virtual workers on one CPU, before any backend starts."""

import os

import jax

import jaxcompress

jaxcompress.virtual_cpu_workers(8)

# The tests compile hundreds of small programs and run each a few times: without LLVM's optimisation they take half as
# long. XLA's own passes, and so every count of bytes and collectives, are the same. The flags are read when the backend
# starts; processes that a test starts are to run as a user's do, so they do not inherit them.
_flags = os.environ.get("XLA_FLAGS")
os.environ["XLA_FLAGS"] = f"{_flags or ''} --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
jax.devices()
if _flags is None:
    del os.environ["XLA_FLAGS"]
else:
    os.environ["XLA_FLAGS"] = _flags
