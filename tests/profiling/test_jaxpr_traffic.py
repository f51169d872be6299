"""What a traced program asks for: every kind of inner program, and what cannot be counted."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxcompress.profiling.jaxpr_traffic import traffic_of_jaxpr

SIZES = {"data": 4, "node": 2}
X = jnp.ones(10, jnp.float32)  # 40 bytes


def count(f, *args, **kwargs):
    return traffic_of_jaxpr(jax.make_jaxpr(f, axis_env=list(SIZES.items()))(*args), SIZES, **kwargs)


def test_no_collectives_is_no_traffic():
    assert count(lambda x: x @ x, X).collectives == ()


@pytest.mark.parametrize("reduction", [lax.psum, lax.pmax, lax.pmin, lax.pmean])
def test_a_reduction_is_an_all_reduce_of_its_operand(reduction):
    (each,) = count(lambda x: reduction(x, "data"), X).collectives
    assert each == ("all-reduce", ("float32",), 40, 4, 1, ("data",))


def test_several_axes_make_one_group():
    (each,) = count(lambda x: lax.psum(x, ("data", "node")), X).collectives
    assert each.group == 8 and each.axes == ("data", "node")


def test_groups_inside_an_axis_are_smaller():
    (each,) = count(
        lambda x: lax.psum(x, "data", axis_index_groups=[[0, 1], [2, 3]]), X
    ).collectives
    assert each.group == 2


def test_the_dtype_is_the_programs_own():
    step = count(
        lambda x: lax.psum(
            (x.astype(jnp.bfloat16), x.astype(jnp.int8), x.astype(jnp.float8_e4m3fn)), "data"
        ),
        X,
    )
    assert [(each.dtypes, each.payload_bytes) for each in step.collectives] == [
        (("bfloat16",), 20),
        (("int8",), 10),
        (("float8_e4m3fn",), 10),
    ]


@jax.custom_vjp
def summed(x):
    return lax.psum(x, "data")


summed.defvjp(lambda x: (summed(x), None), lambda residual, g: (lax.psum(g, "data"),))


@pytest.mark.parametrize(
    "wrap", [jax.jit, jax.checkpoint, lambda f: jax.jit(jax.checkpoint(jax.jit(f)))]
)
@pytest.mark.parametrize("f", [summed, lambda x: lax.psum(x, "data")])
def test_inner_programs_are_walked_once(wrap, f):
    assert count(wrap(f), X).payload_bytes == 40


def test_a_backward_pass_counts_its_own_collectives():
    assert count(jax.grad(lambda x: summed(x).sum()), X).payload_bytes == 80


def test_nested_loops_multiply():
    def f(x):
        inner = lambda carry: lax.fori_loop(0, 3, lambda i, c: c + lax.psum(x, "data"), carry)  # noqa: E731
        return lax.scan(lambda carry, _: (inner(carry), None), x, None, length=5)[0]

    (each,) = count(f, X).collectives
    assert (each.count, each.payload_bytes) == (15, 40)


def switch(i, x):
    return lax.switch(
        i,
        [lambda: lax.psum(x, "data"), lambda: jnp.pad(lax.psum(x[:4], "data"), (0, 6)), lambda: x],
    )


def test_of_several_branches_the_largest_counts_unless_another_is_chosen():
    assert count(switch, 0, X).payload_bytes == 40
    assert count(switch, 0, X, branch=lambda branches: branches[1]).payload_bytes == 16
    assert count(switch, 0, X, branch=lambda branches: branches[2]).payload_bytes == 0


def test_branches_that_send_nothing_are_not_asked_about():
    def with_a_local_choice(i, x):
        return switch(i, lax.cond(i > 0, jnp.sin, jnp.cos, x))

    assert count(with_a_local_choice, 0, X, branch=lambda branches: branches[2]).payload_bytes == 0


def test_a_loop_of_unknown_length_is_refused_only_if_it_communicates():
    def loop(f):
        return lambda n, x: lax.while_loop(
            lambda c: c[0] < n, lambda c: (c[0] + 1, f(c[1])), (0, x)
        )

    assert count(loop(lambda x: x + 1), 3, X).payload_bytes == 0
    communicates = loop(lambda x: lax.psum(x, "data"))
    with pytest.raises(ValueError, match=r"number of rounds is not known.*rounds="):
        count(communicates, 3, X)
    assert count(communicates, 3, X, rounds=3).payload_bytes == 120
    assert count(communicates, 3, X, rounds=0).payload_bytes == 0
    with pytest.raises(ValueError, match="rounds is the rounds of each loop"):
        count(communicates, 3, X, rounds=-1)


def test_an_axis_of_unknown_size_is_named():
    jaxpr = jax.make_jaxpr(lambda x: lax.psum(x, "data"), axis_env=[("data", 4)])(X)
    with pytest.raises(ValueError, match="the size of axis 'data' is not known"):
        traffic_of_jaxpr(jaxpr)


def test_an_axis_that_vmap_removed_moves_nothing():
    batched = jax.vmap(lambda x: lax.psum(x, ("workers", "data")), axis_name="workers")
    (each,) = count(batched, jnp.ones((3, 10))).collectives
    assert each.group == 4
