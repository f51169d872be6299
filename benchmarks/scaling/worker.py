"""One host that times JAX's collectives over gloo, each alone in a program.

``python -m benchmarks.scaling --measure`` starts it in a network namespace:

    python -m benchmarks.scaling.worker RANK WORKERS ADDRESS '[["all-reduce", 1048576], …]'

ADDRESS is that of rank 0. A program's name is its operation and its payload, the input bytes of one
worker: ``"all-reduce 1048576"``.
"""

import json
import sys

from benchmarks.hosts.jax_host import barrier, join, versions
from benchmarks.hosts.worker import serve
from jaxcompress.planning.measure import collective_program


def main(rank: int, workers: int, address: str, requested: str) -> None:
    """Joins the others, compiles every program, and serves them."""
    mesh = join(rank, workers, address)
    programs = {
        f"{name} {size}": collective_program(name, size, mesh, ("data",), ("data",))
        for name, size in json.loads(requested)
    }
    serve(versions(), programs, barrier(mesh))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
