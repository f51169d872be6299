"""PyTorch's side trains as JAX's does; needs torch."""

import jax
import numpy as np
import optax
import pytest
from subprocesses import free_port

from benchmarks.time_to_accuracy.methods import METHODS
from benchmarks.time_to_accuracy.tasks import TASKS, config_of
from train.models.build_model import build_model
from train.optimizer import make_chain
from train.task import init_model

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
SHAPES = {"kernel": (4, 3), "bias": (3,)}


@pytest.fixture(scope="module")
def alone():
    """A group of one process."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("task", [name for name in TASKS if name != "transformer 4M"])
def test_the_models_compute_the_same(task):
    from benchmarks.time_to_accuracy.torch_models import build, load_flax

    config = config_of(TASKS[task])
    if config.model == "transformer":
        classes, inputs = 65, RNG.integers(0, 65, (2, config.context)).astype(np.int32)
    else:
        shape = (28, 28, 1) if config.model == "simple_cnn" else (32, 32, 3)
        classes, inputs = 10, RNG.standard_normal((2, *shape)).astype(np.float32)
    size = {"transformer_size": config.transformer_size}
    flax = build_model(config.model, classes, inputs.shape[1:], **size)
    params, batch_stats = init_model(flax, {"inputs": inputs}, 0)
    model = build(config, classes, inputs.shape[1:])
    load_flax(model, params)
    variables = {"params": params, "batch_stats": batch_stats}
    expected, _ = flax.apply(variables, inputs, train=True, mutable=["batch_stats"])
    with torch.no_grad():
        found = model.train()(torch.from_numpy(inputs))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("task", ["transformer 0.4M", "CNN on MNIST"])
def test_the_optimizers_take_the_same_steps(task):
    from benchmarks.time_to_accuracy.torch_worker import clip, make_optimizer

    config = config_of(TASKS[task], weight_decay=0.1)
    params = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    model = torch.nn.ParameterDict({name: torch.from_numpy(x.copy()) for name, x in params.items()})
    theirs = make_optimizer(model, config)
    ours = make_chain(config, optax.identity(), lambda count: config.learning_rate, "data")
    state = ours.init(params)
    for step in range(4):
        grads = {name: (0.1 + step) * RNG.standard_normal(x.shape) for name, x in params.items()}
        grads = {name: x.astype(np.float32) for name, x in grads.items()}
        updates, state = ours.update(grads, state, params)
        params = jax.tree.map(np.asarray, optax.apply_updates(params, updates))
        for name, x in model.items():
            x.grad = torch.from_numpy(grads[name])
        if config.clip_norm is not None:
            clip(model, config.clip_norm)
        theirs.step()
    for name, x in model.items():
        np.testing.assert_allclose(x.detach(), params[name], rtol=1e-5, atol=1e-6)


def test_parameters_are_averaged_after_the_last_step_of_a_period(alone, monkeypatch):
    from torch.distributed.algorithms.model_averaging import utils

    from benchmarks.time_to_accuracy.torch_averaging import averages_of_parameters

    (method,) = [each for each in METHODS if each.name == "PeriodicModelAverager"]
    taken, averaged = 0, []
    monkeypatch.setattr(
        utils, "average_parameters_or_parameter_groups", lambda *_: averaged.append(taken)
    )
    average = averages_of_parameters(method, torch.nn.Linear(2, 2))
    for taken in range(1, 31):  # noqa: B007
        average()
    assert averaged == [10, 20, 30]


def test_validation_takes_the_mean_of_all_statistics(alone, monkeypatch):
    from benchmarks.time_to_accuracy.torch_worker import average_statistics

    model = torch.nn.BatchNorm2d(2)
    model.running_mean.fill_(1.0)
    # The other worker's mean is 5, and its variance 7.
    others = iter([5.0, 7.0])
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda x: x.add_(next(others)))
    average_statistics(model, 2)
    assert model.running_mean.tolist() == [3.0, 3.0]
    assert model.running_var.tolist() == [4.0, 4.0]
    assert model.num_batches_tracked == 0


def test_what_top_k_does_not_send_stays_in_its_memory(alone):
    from benchmarks.network.torch_top_k import TopK

    compressor = TopK([torch.Size((100,)), torch.Size((3,))], 0.05, [1])
    summed, sent = torch.zeros(100), torch.zeros(100)
    for _ in range(3):
        grads = [torch.from_numpy(RNG.standard_normal(n).astype(np.float32)) for n in (100, 3)]
        mean, dense = compressor.average(grads)
        assert int((mean != 0).sum()) == 5
        torch.testing.assert_close(dense, grads[1])
        summed, sent = summed + grads[0], sent + mean
    torch.testing.assert_close(sent + compressor.memory, summed)
