"""Does the average of a fragment run while workers take their next steps? Compiled, never run.

    JAX_PLATFORMS=cpu python -m benchmarks.period_overlap     programs for TPU v5e and H100
    python -m benchmarks.period_overlap --no-measure          the table of the file

Streaming DiLoCo applies the average of a fragment some steps after it was started, so that the
network works while the workers compute. `jaxcompress.make_streaming_average` is one program of
both: here of one of the four fragments of a transformer, and one or four steps. The compiler's
flags are those with which buckets of gradients start during the backward pass
(`benchmarks.compiled`). The columns:

- `steps`: the steps that workers take in the program.
- `collectives`, `megabytes`: of the program; one sums the weights of the workers, 4 bytes.
- `asynchronous`: of the collectives, how many have a start and an end.
- `between`: the share of the program's expected cycles (TPU) or kernels (GPU) that lies between the
  start and the end of an asynchronous collective.

TPU programs need libtpu, GPU programs JAX's CUDA plugin, each in an environment of its own. What
cannot be compiled here is left out.
"""

import dataclasses
import sys
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import optax
import tyro
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.compiled import gpu, tpu
from benchmarks.compiled.schedule import covered, spans
from train.models.build_model import build_model
from train.task import losses_and_correct

PAGE = REPOSITORY / "docs" / "periods.md"
WORKERS, FRAGMENTS, ROWS, CONTEXT, CHARACTERS = 8, 4, 8, 128, 65
SIZE = {"width": 512, "layers": 2, "heads": 8, "scan_layers": False}
PLATFORMS = ("tpu", "h100")
STEPS = (1, 4)
COMPRESSORS = ("dense()", "error_feedback(int4())")


def _order(row: Row) -> tuple[int, ...]:
    return (
        position(PLATFORMS, row["platform"]),
        position(COMPRESSORS, row["compressor"]),
        int(row["steps"]),
    )


RESULTS = Results("period_overlap.csv", ("platform", "compressor", "steps"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which programs."""

    measure: bool = True
    platform: tuple[Literal["tpu", "h100"], ...] = PLATFORMS


def main(options: Options) -> None:
    """Compiles one program after the other, and saves each."""
    for platform in options.platform if options.measure else ():
        module = tpu if platform == "tpu" else gpu
        if lacks := module.missing():
            print(f"{platform} is left out. {lacks}", file=sys.stderr)
            continue
        if platform != "tpu":
            gpu.expect_a_slow_network()
        for compressor in COMPRESSORS:
            for steps in STEPS:
                row = measure(platform, compressor, steps)
                RESULTS.save([row | environment()])
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "period_overlap", text)


def measure(platform: str, compressor: str, steps: int) -> Row:
    """The row of one program."""
    mesh = tpu.tpu_mesh(WORKERS) if platform == "tpu" else gpu.gpu_mesh(platform, WORKERS)
    flags = tpu.ASYNCHRONOUS if platform == "tpu" else gpu.NO_AUTOTUNING | gpu.ASYNCHRONOUS
    found = spans(lowered(mesh, compressor, steps).compile(flags).as_text())
    return {
        "platform": platform,
        "compressor": compressor,
        "steps": steps,
        "collectives": len(found),
        "megabytes": f"{sum(span.collective.wire_bytes for span in found) / 1e6:.1f}",
        "asynchronous": sum(span.asynchronous for span in found),
        "between": f"{covered(one for one in found if one.asynchronous):.2f}",
    }


def lowered(mesh: Mesh, compressor: str, steps: int) -> Any:
    """The program: the first fragment is averaged while workers take `steps` steps."""
    model = build_model(
        "transformer", CHARACTERS, (CONTEXT,), precision="bfloat16", transformer_size=SIZE
    )
    inputs = jnp.zeros((1, CONTEXT), jnp.int32)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), inputs, train=False)["params"])
    link = jaxcompress.compress(jaxcompress.parse(compressor))
    outer = optax.sgd(0.7, momentum=0.9, nesterov=True)
    optimizer = jaxcompress.streaming(optax.adamw(4e-4), outer, link, FRAGMENTS)
    workers = jaxcompress.VirtualMesh(WORKERS)
    state = jax.eval_shape(
        lambda params: jaxcompress.init_state(optimizer, params, workers), params
    )

    def loss_fn(params, batch):
        logits = cast(jax.Array, model.apply({"params": params}, batch[:, :-1], train=True))
        return losses_and_correct(logits, batch[:, 1:])[0].mean()

    def placed(tree, specs):
        return jax.tree.map(
            lambda x, spec: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=NamedSharding(mesh, spec)
            ),
            tree,
            specs,
        )

    replicated = jax.tree.map(lambda _: P(), params)
    rows = jax.ShapeDtypeStruct((WORKERS * ROWS, CONTEXT + 1), jnp.int32)
    return jaxcompress.make_streaming_average(loss_fn, optimizer, mesh).lower(
        placed(params, replicated),
        placed(state, jaxcompress.state_specs(state, "data")),
        jaxcompress.PerWorker({}),
        [placed(rows, P("data"))] * steps,
        fragment=0,
    )


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each program."""
    return [
        {
            "compiled for": "8 TPU v5e" if row["platform"] == "tpu" else "8 H100",
            "average": f"`{row['compressor']}`",
            "steps beside it": row["steps"],
            "collectives": row["collectives"],
            "asynchronous": row["asynchronous"],
            "program between start and end": _percent(row["between"]),
        }
        for row in rows
    ]


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f} %" if share else ""


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
