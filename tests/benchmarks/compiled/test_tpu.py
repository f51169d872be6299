"""Compiling for TPU chips that do not exist; needs libtpu."""

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.compiled import tpu
from jaxcompress import traffic_of_hlo


def test_every_topology_has_the_chips_it_is_listed_with():
    for chips, name in tpu.TOPOLOGIES.items():
        rows, columns = name.removeprefix("v5e:").split("x")
        assert int(rows) * int(columns) == chips


def test_an_unknown_number_of_chips_is_refused():
    with pytest.raises(ValueError, match="got 7"):
        tpu.tpu_mesh(7)


@pytest.mark.skipif(tpu.missing() is None, reason="libtpu is here")
def test_what_is_missing_says_what_to_install():
    assert "jax[tpu]" in tpu.missing()


@pytest.mark.skipif(tpu.missing() is not None, reason="there is no libtpu")
def test_a_sum_over_eight_chips_compiles():
    mesh = tpu.tpu_mesh(8)
    total = jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
    )
    x = jax.ShapeDtypeStruct((8, 128), "float32", sharding=NamedSharding(mesh, P("data")))
    (each,) = traffic_of_hlo(jax.jit(total).lower(x).compile().as_text()).collectives
    assert (each.operation, each.payload_bytes, each.group) == ("all-reduce", 512, 8)
