"""A sharded model trains as a whole one does, and only shards cross between workers."""

import contextlib
import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P
from train_helpers import ALONE

import jaxcompress
from train.config import Config
from train.config_rules import check_config
from train.data.registry import DATASETS
from train.data.text import make_text
from train.errors import InputError
from train.loop import train
from train.models.build_model import build_model
from train.processes import make_mesh, workers_of
from train.sharding import init_on_mesh, parameter_shardings
from train.startup import prepare_run

# One process runs them all, so that it compiles once.
pytestmark = pytest.mark.xdist_group("shards in training")

SENTENCE = "the quick brown fox jumps over the lazy dog. "
WHOLE = Config(
    **ALONE,
    dataset="tiny_shakespeare",
    model="transformer",
    width=32,
    heads=4,
    context=12,
    optimizer="adamw",
    learning_rate=0.02,
    batch_size=32,
    workers=2,
    epochs=1.0,
)
FSDP = dataclasses.replace(WHOLE, fsdp=4)
BOTH = dataclasses.replace(WHOLE, fsdp=2, tensor=2)
STACKED = dataclasses.replace(BOTH, scan_layers=True)


@pytest.fixture(autouse=True, scope="module")
def sentences():
    def load(data_dir, context, evaluated):
        return make_text("tiny_shakespeare", 100 * SENTENCE, 3 * SENTENCE, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATASETS, "tiny_shakespeare", load)
        yield


def mesh_of(config: Config) -> jax.sharding.Mesh:
    return jaxcompress.hybrid_mesh({"data": 2, "fsdp": config.fsdp, "tensor": config.tensor})


def params_of(config: Config):
    model = build_model("transformer", 28, (12,), transformer_size=config.transformer_size)
    batch = {"inputs": jnp.zeros((32, 12), jnp.int32)}
    return init_on_mesh(model, batch, 0, mesh_of(config))[0]


@pytest.fixture(scope="module")
def of_whole(sentences):
    """The summary of workers that hold the whole model."""
    return train(dataclasses.replace(WHOLE, vmap=True))


@pytest.mark.parametrize(
    "config",
    [
        # Two processes train with fsdp alone in tests/train/test_processes.py.
        pytest.param(FSDP, id="fsdp", marks=pytest.mark.slow),
        pytest.param(BOTH, id="fsdp and tensor"),
    ],
)
def test_without_compression_it_learns_what_the_whole_model_does(config, of_whole):
    found = train(config)
    for name in ("train_loss", "test_loss"):
        assert found[name] == pytest.approx(of_whole[name], rel=1e-3)
    assert (found["workers"], found["steps"]) == (2, of_whole["steps"])
    # A device sends its shards, and the vectors that are not split.
    assert 0.2 < found["dense_bytes_per_step"] / of_whole["dense_bytes_per_step"] < 0.4


def test_compressed_shards_are_few_bytes_and_the_run_resumes(tmp_path):
    config = dataclasses.replace(
        STACKED,
        compressor="error_feedback(block_max(32))",
        workdir=str(tmp_path),
        checkpoint_every_steps=2,
    )
    summary = train(config)
    assert summary["test_perplexity"] < 17
    assert summary["bytes_per_step"] < summary["dense_bytes_per_step"] / 5
    # Without checksums the last checkpoint is incomplete, as if the run was killed in saving.
    last = max(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    (tmp_path / "checkpoints" / str(last) / "sha256.json").unlink()
    again = train(config)
    assert again | {"seconds": 0} == summary | {"seconds": 0}
    assert "unreadable" in {path.name for path in tmp_path.iterdir()}


def test_heads_and_hidden_features_are_split_by_tensor_and_the_rest_by_fsdp():
    params = params_of(BOTH)
    block = params["Block_0"]
    attention = block["MultiHeadDotProductAttention_0"]
    assert attention["query"]["kernel"].sharding.spec == P("fsdp", "tensor", None)
    assert attention["out"]["kernel"].sharding.spec == P("tensor", None, "fsdp")
    assert block["Dense_0"]["kernel"].sharding.spec == P("fsdp", "tensor")
    assert block["Dense_1"]["kernel"].sharding.spec == P("tensor", "fsdp")
    assert params["unembedding"]["bias"].sharding.spec == P(None)
    stacked = params_of(STACKED)["blocks"]["Dense_0"]
    assert stacked["kernel"].sharding.spec == P(None, "fsdp", "tensor")
    assert stacked["bias"].sharding.spec == P(None, "tensor")


def test_parameters_do_not_depend_on_the_mesh():
    by_rows, by_heads = params_of(FSDP), params_of(BOTH)
    for one, other in zip(jax.tree.leaves(by_rows), jax.tree.leaves(by_heads), strict=True):
        assert jnp.allclose(jax.device_get(one), jax.device_get(other), atol=1e-6)


def test_an_axis_that_does_not_divide_stays_whole():
    mesh = mesh_of(FSDP)
    found = parameter_shardings({"w": jax.ShapeDtypeStruct((6, 10), "float32")}, mesh)
    assert found["w"].spec == P(None, None)


def test_the_workers_of_a_sharded_mesh_are_not_its_devices():
    assert workers_of(mesh_of(BOTH)) == 2


def test_a_worker_has_devices_of_one_process_only():
    with pytest.raises(InputError, match=r"3 devices of one process, and this process has 8"):
        make_mesh(dataclasses.replace(WHOLE, workers=None, fsdp=3))


def test_an_optimizer_that_sends_its_momentum_is_refused():
    config = dataclasses.replace(FSDP, optimizer="onebit_adam", compressor="error_feedback(sign())")
    with pytest.raises(InputError, match=r"onebit_adam sends its momentum.*got fsdp=4"):
        prepare_run(config, contextlib.ExitStack())


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        (
            {"model": "lstm", "tensor": 2, "width": 128},
            "tensor splits the heads of a transformer; got tensor=2",
        ),
        ({"tensor": 8}, "tensor must divide the number of heads; got tensor=8 for 4 heads"),
        ({"fsdp": 2, "vmap": True}, "give each worker devices of its own"),
        ({"fsdp": 2, "nodes": 2}, "give each worker devices of its own"),
        ({"fsdp": 0}, "fsdp must be at least 1 and below"),
        ({"width": 30}, "width must be a multiple of heads, at least 1; got 30"),
        ({"heads": 0}, "heads must be at least 1 and below"),
        ({"fsdp": 3}, "got 32 for 2 workers of 3 devices. Use --batch-size 30 or 36"),
    ],
)
def test_settings_that_do_not_fit_are_reported(changes, reported):
    with pytest.raises(InputError) as error:
        check_config(dataclasses.replace(WHOLE, **(dict.fromkeys(ALONE) | changes)))
    assert reported in str(error.value)
