"""A start with less compression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcompress.schedules.warmup import warmup


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_index_is_the_number_of_whole_stages(steps):
    counts = np.arange(3 * steps + 1)
    np.testing.assert_array_equal(
        jax.vmap(warmup(steps))(jnp.asarray(counts)), np.floor(counts / steps)
    )


def test_index_is_an_integer_also_inside_jit():
    index = jax.jit(warmup(3))(jnp.int32(8))
    assert (index.dtype, int(index)) == (jnp.int32, 2)


def test_last_step_before_a_stage_is_still_below_it():
    assert [int(warmup(4000)(jnp.int32(count))) for count in (3999, 4000)] == [0, 1]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("steps", [0, -1, 1.5, 2.0, True, "3", None])
def test_steps_that_are_no_count_are_refused(steps):
    with pytest.raises(
        ValueError,
        match=r"steps is the number of steps at each stage, an integer from 1 to 2\^31 - 1; got",
    ):
        warmup(steps)
