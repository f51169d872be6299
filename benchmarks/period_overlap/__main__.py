"""Can the average of a period run while workers take their next steps? Compiled, never run.

    JAX_PLATFORMS=cpu python -m benchmarks.period_overlap     programs for TPU v5e and H100
    python -m benchmarks.period_overlap --platform            the table of the file

Streaming DiLoCo applies the average of a fragment some steps after it was started, so that the
network works while the workers compute. In JAX that needs one program which holds both: here one
average of all drifts and four inner steps of a transformer that do not need it. Either the four
steps follow one another in the program, or they are a loop. The compiler's flags are those with
which buckets of gradients start during the backward pass (`benchmarks.compiled`). The columns:

- `asynchronous`: of the collectives, how many have a start and an end.
- `between`: the share of the program's expected cycles (TPU) or kernels (GPU) between start and
  end, the mean over the collectives weighted by bytes. A loop counts as one kernel.
- `around_the_loop`: how many collectives start before the loop of inner steps and end after it.

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
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.common.environment import environment
from benchmarks.common.pages import REPOSITORY, markdown, write_between
from benchmarks.common.results import Results, Row, position
from benchmarks.compiled import gpu, tpu
from benchmarks.compiled.schedule import Span, around_loops, spans
from jaxcompress._compat import vary
from train.models.build_model import build_model
from train.task import losses_and_correct

PAGE = REPOSITORY / "docs" / "periods.md"
WORKERS, STEPS, ROWS, CONTEXT, CHARACTERS = 8, 4, 8, 128, 65
SIZE = {"width": 512, "layers": 2, "heads": 8, "scan_layers": False}
PLATFORMS = ("tpu", "h100")
SHAPES = ("one after the other", "a loop")
COMPRESSORS = ("dense()",)


def _order(row: Row) -> tuple[int, ...]:
    return (
        position(PLATFORMS, row["platform"]),
        position(COMPRESSORS, row["compressor"]),
        position(SHAPES, row["inner_steps"]),
    )


RESULTS = Results("period_overlap.csv", ("platform", "compressor", "inner_steps"), _order)


@dataclasses.dataclass(frozen=True)
class Options:
    """Which programs."""

    platform: tuple[Literal["tpu", "h100"], ...] = PLATFORMS


def main(options: Options) -> None:
    """Compiles one program after the other, and saves each."""
    for platform in options.platform:
        module = tpu if platform == "tpu" else gpu
        if lacks := module.missing():
            print(f"{platform} is left out. {lacks}", file=sys.stderr)
            continue
        if platform != "tpu":
            gpu.expect_a_slow_network()
        for compressor in COMPRESSORS:
            for shape in SHAPES:
                row = measure(platform, compressor, shape)
                RESULTS.save([row | environment()])
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if rows := RESULTS.read():
        text = markdown(table(rows))
        print(text)
        write_between(PAGE, "period_overlap", text)


def measure(platform: str, compressor: str, shape: str) -> Row:
    """The row of one program."""
    mesh = tpu.tpu_mesh(WORKERS) if platform == "tpu" else gpu.gpu_mesh(platform, WORKERS)
    flags = tpu.ASYNCHRONOUS if platform == "tpu" else gpu.NO_AUTOTUNING | gpu.ASYNCHRONOUS
    text = lowered(mesh, compressor, shape).compile(flags).as_text()
    found = spans(text)
    return {
        "platform": platform,
        "compressor": compressor,
        "inner_steps": shape,
        "collectives": len(found),
        "megabytes": f"{sum(span.collective.wire_bytes for span in found) / 1e6:.1f}",
        "asynchronous": sum(span.asynchronous for span in found),
        "between": f"{_between(found):.2f}",
        "around_the_loop": sum(around_loops(text)) if shape == "a loop" else "",
    }


def lowered(mesh: Mesh, compressor: str, shape: str) -> Any:
    """The program: the drifts of the last period are averaged, and the inner steps go on."""
    model = build_model(
        "transformer", CHARACTERS, (CONTEXT,), precision="bfloat16", transformer_size=SIZE
    )
    inputs = jnp.zeros((1, CONTEXT), jnp.int32)
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), inputs, train=False)["params"])
    link = jaxcompress.compress(jaxcompress.parse(compressor))
    state = jax.eval_shape(
        lambda params: jaxcompress.init_state(link, params, jaxcompress.VirtualMesh(WORKERS)),
        params,
    )

    def loss_fn(params, batch):
        logits = cast(jax.Array, model.apply({"params": params}, batch[:, :-1], train=True))
        return losses_and_correct(logits, batch[:, 1:])[0].mean()

    def inner(own, batch):
        grads = jax.grad(loss_fn)(own, batch)
        return jax.tree.map(lambda x, grad: x - 0.1 * grad, own, grads), None

    def one_worker(anchor, drift, own, state, batches):
        state = jaxcompress.squeeze_worker_axis(state)
        drift, own = (jax.tree.map(lambda x: x[0], tree) for tree in (drift, own))
        mean, state = link.update(drift, state, anchor)
        if shape == "a loop":
            own, _ = lax.scan(inner, own, batches)
        else:
            for batch in batches:
                own, _ = inner(own, batch)
        anchor = optax.apply_updates(anchor, jax.tree.map(jnp.negative, mean))
        own = jax.tree.map(lambda x, y: 0.5 * (x + vary(y, "data")), own, anchor)
        return anchor, jax.tree.map(lambda x: x[None], own), jaxcompress.expand_worker_axis(state)

    specs = jaxcompress.state_specs(state, "data")
    each = P("data")
    step = jax.shard_map(
        one_worker,
        mesh=mesh,
        in_specs=(P(), each, each, specs, P(None, "data")),
        out_specs=(P(), each, specs),
    )
    rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct((WORKERS, *x.shape), x.dtype), params)
    batches = jax.ShapeDtypeStruct((STEPS, WORKERS * ROWS, CONTEXT + 1), jnp.int32)
    arguments = (params, rows, rows, state, batches)

    def placed(tree, spec):
        return jax.tree.map(
            lambda x, one: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=NamedSharding(mesh, one)
            ),
            tree,
            spec if spec is specs else jax.tree.map(lambda _: spec, tree),
        )

    return jax.jit(step).lower(*map(placed, arguments, (P(), each, each, specs, P(None, "data"))))


def _between(found: list[Span]) -> float:
    weights = [span.collective.wire_bytes for span in found]
    shares = [span.step_between for span in found]
    return sum(w * s for w, s in zip(weights, shares, strict=True)) / sum(weights)


def table(rows: list[Row]) -> list[dict[str, Any]]:
    """One line for each program."""
    return [
        {
            "compiled for": "8 TPU v5e" if row["platform"] == "tpu" else "8 H100",
            "average": f"`{row['compressor']}`",
            "inner steps": row["inner_steps"],
            "collectives": row["collectives"],
            "asynchronous": row["asynchronous"],
            "program between start and end": _percent(row["between"]),
            "collectives around the loop": row["around_the_loop"],
        }
        for row in rows
    ]


def _percent(share: str) -> str:
    return f"{100 * float(share):.0f} %" if share else ""


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
