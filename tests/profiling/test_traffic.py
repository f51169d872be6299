"""Real programs on virtual workers: bytes by hand, from the jaxpr, and from the
compiled program.
"""

from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxcompress import data_mesh
from jaxcompress.profiling.traffic import traffic

N = 16  # entries of each worker; 64 bytes in float32


def gathered_bits(x):
    return lax.all_gather(lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16), "data")


def ring(x):
    workers = lax.axis_size("data")
    return lax.ppermute(x, "data", [(i, (i + 1) % workers) for i in range(workers)])


def scanned(x):
    # The operand depends on the carry, so that the compiler cannot move the sum out of the loop.
    return lax.scan(
        lambda c, _: (lax.pcast(lax.psum(c, "data") * 0.5, "data", to="varying"), None), x, length=5
    )[0]


# program, payload bytes, wire bytes for W workers
CASES = {
    "sum of a tree": (
        lambda x: lax.psum({"a": x, "b": x[:3]}, "data"),
        lambda w: 76,
        lambda w: -(-2 * (w - 1) * 76 // w),
    ),
    "maximum": (lambda x: lax.pmax(x, "data"), lambda w: 64, lambda w: 2 * (w - 1) * 64 // w),
    "gather": (lambda x: lax.all_gather(x, "data"), lambda w: 64, lambda w: (w - 1) * 64),
    "gather to all": (
        lambda x: lax.all_gather(x, "data", to="invarying"),
        lambda w: 64,
        lambda w: (w - 1) * 64,
    ),
    "gather of bits": (gathered_bits, lambda w: 32, lambda w: (w - 1) * 32),
    "scatter": (
        lambda x: lax.psum_scatter(x, "data", tiled=True),
        lambda w: 64,
        lambda w: (w - 1) * 64 // w,
    ),
    "exchange": (
        lambda x: lax.all_to_all(x, "data", 0, 0, tiled=True),
        lambda w: 64,
        lambda w: (w - 1) * 64 // w,
    ),
    "ring": (ring, lambda w: 64, lambda w: 64),
    "five rounds": (scanned, lambda w: 5 * 64, lambda w: 5 * 2 * (w - 1) * 64 // w),
}


def program(f, *shape):
    """A jitted step of `f` on a mesh of this shape, with one array of N entries for each worker."""
    names = ("data",) if len(shape) == 1 else ("node", "data")
    mesh = jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape))
    spec = P(names)

    def step(x):
        # A first axis of one, so that every result can be laid side by side whatever its shape.
        return jax.tree.map(lambda y: jnp.expand_dims(y, 0), f(x))

    out = jax.shard_map(step, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    size = N * mesh.size
    return jax.jit(out), jax.ShapeDtypeStruct(
        (size,), jnp.float32, sharding=NamedSharding(mesh, spec)
    )


@pytest.mark.parametrize("workers", [2, 4, 8])
@pytest.mark.parametrize("case", CASES)
def test_both_counts_equal_the_hand_formula(case, workers):
    f, payload, wire = CASES[case]
    step, x = program(f, workers)
    for counted in traffic(step, x):
        assert counted.payload_bytes == payload(workers)
        # The compiler may merge collectives, which rounds once instead of twice.
        assert abs(counted.wire_bytes - wire(workers)) < len(counted.collectives) + 1


@pytest.mark.parametrize(("axis", "group"), [("node", 2), ("data", 4), (("node", "data"), 8)])
def test_a_group_is_the_workers_along_its_axes(axis, group):
    for counted in traffic(*program(lambda x: lax.psum(x, axis), 2, 4)):
        (each,) = counted.collectives
        assert each[:5] == ("all-reduce", ("float32",), 64, group, 1)


@pytest.mark.parametrize("axes", [("node",), ("data",), ("node", "data")])
def test_the_mesh_gives_compiled_collectives_their_axes(axes):
    step, x = program(lambda x: lax.psum(x, axes), 2, 4)
    requested, compiled = traffic(step, x, mesh=x.sharding.mesh)
    for counted in (requested, compiled):
        assert [each.axes for each in counted.collectives] == [axes]
    for axis in ("node", "data"):
        assert compiled.over(axis).wire_bytes == requested.over(axis).wire_bytes


def test_both_counts_take_the_rounds_of_a_loop():
    def loop(x):
        def body(carry):
            step, y = carry
            return step + 1, lax.pcast(lax.psum(y, "data") * 0.5, "data", to="varying")

        return lax.while_loop(lambda carry: carry[1].sum() > carry[0], body, (0, x))[1]

    # Every worker leaves the loop after the same number of rounds, but no program says which.
    step, x = program(loop, 4)
    for counted in traffic(step, x, rounds=5):
        assert counted.payload_bytes == 5 * 64


def test_both_counts_know_that_a_condition_also_ends_its_loop():
    def loop(x):
        def goes_on(carry):
            return lax.psum(carry[1].sum(), "data") > carry[0]

        return lax.while_loop(goes_on, lambda carry: (carry[0] + 1, carry[1] / 2), (0, x))[1]

    step, x = program(loop, 4)
    for counted in traffic(step, x, rounds=5):
        assert counted.payload_bytes == 6 * 4


def test_both_counts_take_a_loop_of_one_round_or_none_for_a_branch():
    def loop(x):
        def body(carry):
            return False, lax.pcast(lax.psum(carry[1], "data"), "data", to="varying")

        due = lax.psum(x.sum(), "data") > 0
        return lax.while_loop(lambda carry: carry[0], body, (due, x))[1]

    step, x = program(loop, 4)
    for counted in traffic(step, x):
        assert counted.payload_bytes == 64 + 4
    for counted in traffic(step, x, branch=lambda branches: branches[0]):
        assert counted.payload_bytes == 4


def test_an_axis_that_the_program_does_not_have_is_refused():
    mesh = data_mesh(4)
    step, x = program(lambda x: lax.psum(x, "data"), 4)
    for counted in traffic(step, x, mesh=mesh):
        with pytest.raises(ValueError, match=r"the program has the axes \('data',\); got 'date'"):
            counted.over("date")
    with pytest.raises(ValueError, match="mesh is a mesh, or its shape"):
        traffic(step, x, mesh="data")


@pytest.mark.parametrize(("index", "payload"), [(0, 64), (1, 16), (2, 0)])
def test_both_counts_choose_the_same_branch(index, payload):
    branches = [
        lambda x: lax.psum(x, "data"),
        lambda x: jnp.pad(lax.psum(x[:4], "data"), (0, N - 4)),
        lambda x: x,
    ]
    # Every worker must take the same branch, so the index is a sum.
    step, x = program(
        lambda x: lax.switch(lax.psum(1 + 0 * x[0].astype(int), "data") % 3, branches, x), 4
    )
    for counted in traffic(step, x, branch=lambda branches: branches[index]):
        assert counted.payload_bytes == 4 + payload


def test_a_cpu_sums_bfloat16_as_float32():
    asked, moved = traffic(*program(lambda x: lax.psum(x.astype(jnp.bfloat16), "data"), 4))
    assert [(each.dtypes, each.payload_bytes) for each in asked.collectives] == [
        (("bfloat16",), 32)
    ]
    assert [(each.dtypes, each.payload_bytes) for each in moved.collectives] == [(("float32",), 64)]


@pytest.mark.parametrize(
    "dtype", [jnp.uint8, jnp.uint16, jnp.int32, jnp.uint32, jnp.float16, jnp.bool_]
)
def test_other_dtypes_are_gathered_as_themselves(dtype):
    for counted in traffic(*program(lambda x: lax.all_gather(x.astype(dtype), "data"), 4)):
        (each,) = counted.collectives
        assert each[:5] == (
            "all-gather",
            (jnp.dtype(dtype).name,),
            N * jnp.dtype(dtype).itemsize,
            4,
            1,
        )


def test_counting_leaves_donated_arguments_alone():
    step, x = program(lambda x: lax.psum(x, "data"), 2)
    value = jax.device_put(jnp.ones(x.shape), x.sharding)
    traffic(jax.jit(step, donate_argnums=0), value)
    assert float(value.sum()) == x.size


def test_what_cannot_be_traced_is_refused():
    with pytest.raises(
        ValueError, match=r"step is what jax.jit or make_train_step returned; got <function"
    ):
        traffic(lambda x: x, N)


def test_a_backend_without_the_text_of_its_programs_is_refused():
    compiled = MagicMock(**{"as_text.return_value": None})
    step = MagicMock(**{"trace.return_value.lower.return_value.compile.return_value": compiled})
    with pytest.raises(ValueError, match="does not show the text"):
        traffic(step, N)
