"""Compiling for GPUs that do not exist; needs JAX's CUDA plugin."""

import importlib.util
import types

import jax
import optax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import jaxcompress
from benchmarks.compiled import gpu
from benchmarks.compiled.kernels import kernels, loops
from benchmarks.compiled.traced_step import trace_step
from jaxcompress import traffic_of_hlo

needs_plugin = pytest.mark.skipif(gpu.missing() is not None, reason=str(gpu.missing()))


@pytest.mark.parametrize("workers", [0, 12])
def test_a_host_that_is_not_full_is_refused(workers):
    with pytest.raises(ValueError, match=f"got {workers}"):
        gpu.gpu_mesh("h100", workers)


def test_an_unknown_card_is_refused():
    with pytest.raises(ValueError, match="got 'k80'"):
        gpu.gpu_mesh("k80", 8)


def test_what_is_missing_says_what_to_do(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert 'pip install "jax[cuda12]' in gpu.missing()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(gpu.jax, "config", types.SimpleNamespace(jax_platforms="cuda"))
    assert "JAX_PLATFORMS=cpu" in gpu.missing()


@needs_plugin
@pytest.mark.parametrize("card", gpu.CARDS)
def test_a_sum_over_two_hosts_compiles(card):
    mesh = gpu.gpu_mesh(card, 16)
    total = jax.shard_map(
        lambda x: jax.lax.psum(x, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
    )
    x = jax.ShapeDtypeStruct((16, 128), "float32", sharding=NamedSharding(mesh, P("data")))
    compiled = jax.jit(total).lower(x).compile(gpu.NO_AUTOTUNING)
    (each,) = traffic_of_hlo(compiled.as_text()).collectives
    assert (each.operation, each.payload_bytes, each.group) == ("all-reduce", 512, 16)


@needs_plugin
def test_a_small_step_compiles_and_its_bytes_are_those_requested():
    def step(text):
        optimizer = optax.chain(jaxcompress.compress(jaxcompress.parse(text)), optax.sgd(0.1))
        traced = trace_step(
            optimizer, gpu.gpu_mesh("h100", 8), 4, "simple_cnn", (28, 28, 1), classes=10
        )
        return traced.jaxpr, traced.lower().compile(gpu.NO_AUTOTUNING).as_text()

    jaxpr, text = step("error_feedback(block_max())")
    assert traffic_of_hlo(text).wire_bytes == jaxcompress.traffic_of_jaxpr(jaxpr).wire_bytes
    assert kernels(text) > kernels(step("dense()")[1]) > 10
    # The messages of the workers are added one after the other, all arrays in one loop.
    assert loops(text) <= 1


@needs_plugin
@pytest.mark.parametrize(
    "compressor", ["cast('bfloat16')", "cast('float16')", "float8('e4m3')", "float8('e5m2')"]
)
def test_a_residual_has_what_the_rounding_left_out(compressor):
    codec = jaxcompress.parse(compressor).codec

    def residual(x):
        return x - codec.decode(codec.encode(jax.random.key(0), x), x)

    placed = NamedSharding(gpu.gpu_mesh("h100", 1), P())
    x = jax.ShapeDtypeStruct((4096,), "float32", sharding=placed)
    text = jax.jit(residual).lower(x).compile(gpu.NO_AUTOTUNING).as_text()
    # To the narrow format, and back: XLA has not taken one for the inverse of the other.
    assert text.count(" convert(") == 2
