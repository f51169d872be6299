"""A whole run, from top to bottom: processes, data, model, optimizer, step, loop."""

import collections
import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

import jaxcompress
from train.checkpoint import Checkpoints, describe_newest
from train.config import Config
from train.console import Reporter, say, say_finished
from train.data.batches import test_batches, train_batches
from train.data.fingerprint import fingerprint
from train.data.registry import load_dataset
from train.errors import FaultError, user_input
from train.levels import LinkRate, SentBytes, adaptive_states, counted_levels, first_rate
from train.metrics import Summary, compression_metrics
from train.models.build_model import build_model
from train.optimizer import local_momentum, make_optimizer, make_schedule
from train.planning import planned_compressor
from train.processes import Mesh, axes_of_rows, is_sharded, raise_on_all_processes, workers_of
from train.program import Program, TrainState, build_program, count_bytes
from train.progress import History, Pace, Progress, check_data, check_divergence
from train.restoring import restore_state
from train.sharding import init_on_mesh
from train.signals import InterruptedRunError, ReceivedSignal, record_signals
from train.startup import has_choices, is_dense, prepare_run
from train.step_plan import make_step_plan
from train.task import Evaluation, make_loss

STEPS_AHEAD = 2


def train(config: Config, earlier_signal: ReceivedSignal | None = None) -> Summary:
    """Trains as `config` says, from the last checkpoint on if there is one.

    A run that has finished returns its saved summary and does not train.
    """
    with contextlib.ExitStack() as at_exit:
        # Processes: validate the settings, connect, and find the last checkpoint.
        run = prepare_run(config, at_exit)
        mesh, axes, progress, checkpoints = run.mesh, run.axes, run.progress, run.checkpoints
        watchdog = run.watchdog
        rows = axes_of_rows(mesh)
        if progress.summary is not None:
            say_finished(run, progress.summary)
            return progress.summary

        # Data: each process reads its own rows of every batch.
        process = jax.process_index(), jax.process_count()
        say(config, f"reading {config.dataset}")
        with raise_on_all_processes():
            dataset = load_dataset(
                config.dataset, config.data_dir, config.context, config.evaluate_on
            )
            plan = make_step_plan(config, dataset)
        identity = fingerprint(dataset)
        check_data(progress, identity)
        batches = train_batches(dataset, config.batch_size, config.seed, *process)
        example = next(train_batches(dataset, config.batch_size, config.seed, *process))

        # Model: the same parameters on every worker, whole or sharded over its devices.
        model = build_model(
            config.model,
            dataset.num_classes,
            example["inputs"].shape[1:],
            config.precision,
            config.transformer_size,
        )
        variables = init_on_mesh(model, example, config.seed, mesh)
        loss, evaluate = make_loss(model), Evaluation(model, mesh)

        # Optimizer: before `compress` gradients are local to a worker, after it they are averaged.
        schedule = make_schedule(config, plan.per_epoch, plan.total)

        def optimizer_of(
            config: Config, compressor: jaxcompress.Compressor
        ) -> optax.GradientTransformationExtraArgs:
            with user_input("compressor"):
                average = jaxcompress.compress(
                    jaxcompress.monitor(local_momentum(config, compressor)),
                    axes,
                    min_compression_rate=config.min_compression_rate,
                    bucket_bytes=config.bucket_bytes,
                    seed=config.seed,
                )
                if is_sharded(mesh):
                    average = jaxcompress.on_shards(average, variables[0])
                return make_optimizer(config, average, schedule, axes)

        def build(config: Config, compressor: jaxcompress.Compressor) -> tuple[TrainState, Program]:
            optimizer = optimizer_of(config, compressor)
            return build_program(loss, optimizer, variables, example, mesh, config, first_rate)

        compressor = run.compressor
        if compressor is None:
            compressor = planned_compressor(
                config, mesh, loss, functools.partial(optimizer_of, config), variables, example
            )
            chosen = run.settings | {"compressor": jaxcompress.unparse(compressor)}
            run = run._replace(compressor=compressor, settings=chosen)

        # Step: compiled, and restored from the last checkpoint.
        dense = None
        if config.period is not None or not is_dense(compressor):
            # To be counted; it never runs. Its state is gone before there is the real one.
            dense = build(dataclasses.replace(config, period=None), jaxcompress.dense())[1]
        state, program = build(config, compressor)
        reporter = at_exit.enter_context(contextlib.closing(Reporter(run, plan.total)))
        reporter.compiling()
        adaptives = adaptive_states(state.opt_state)
        choices = has_choices(config, compressor) or bool(adaptives)
        levels = counted_levels(config, compressor, adaptives)
        sent = count_bytes(program, dense or program, choices, levels, plan)
        take_step, end_period = program.compile(), None
        if config.period is not None and plan.total % config.period:
            end_period = program.compile_end()
        like = state.shapes()
        del variables
        if checkpoints is not None and progress.data is not None:
            del state  # a restored one needs its memory
            state = restore_state(checkpoints, like, run.saved_workers, mesh)
            batches.set_state(progress.data)
        # A look at the history, once in `log_every` steps, sees every row of skipped steps whole.
        kept = max(plan.per_epoch, plan.log_every + config.max_skipped_steps)
        history = History(kept, progress.history, progress.skipped)
        reporter.introduce(state.params, sent)
        link = LinkRate(state.opt_state, mesh, config.measure_bandwidth_every_steps)
        sent_bytes = SentBytes(sent, state.opt_state)

        def bytes_until(step: int) -> float:
            # In other parts of the run there may have been other workers.
            averages = plan.averages(step) - plan.averages(progress.step)
            return progress.bytes_sent + sent_bytes.of(averages, state.opt_state)

        def save(step: int, summary: Summary | None = None) -> None:
            if checkpoints is not None:
                watchdog.pause()
                check_divergence(history, step, config, checkpoints)
                check_replicas(state, mesh, step, checkpoints)
                reporter.flush()
                reached = Progress(
                    step=step,
                    data=batches.get_state(),
                    history=history.read(),
                    skipped=history.skipped(),
                    bytes_sent=bytes_until(step),
                    seconds=progress.seconds + time.monotonic() - started,
                    summary=summary,
                    dataset=identity,
                    numeric_settings=jaxcompress.numeric_settings(),
                )
                record = {"settings": run.settings, "progress": dataclasses.asdict(reached)}
                checkpoints.save(step, state._asdict(), record)

        # Loop: what is due after a step is saved last, so that a checkpoint includes all of it.
        received = at_exit.enter_context(record_signals(earlier_signal))
        started, tested, pace = time.monotonic(), {}, Pace(progress.step)
        under_way: collections.deque[dict[str, jax.Array]] = collections.deque()
        for step in range(progress.step + 1, plan.total + 1):
            # The host is two steps ahead, so that the watchdog sees a step that does not end.
            if len(under_way) == STEPS_AHEAD:
                jax.block_until_ready(under_way.popleft())
            watchdog.step(step)
            # The host makes the next batch while the devices take this step.
            batch = jaxcompress.shard_batch(next(batches), mesh, rows)
            *arrays, metrics = take_step(*state, batch, **link.given(step, state))
            state = TrainState(*arrays)
            if step == plan.total and end_period is not None:
                state = end_period(state)
            under_way.append(metrics)
            history.add(metrics)
            reporter.advance()
            if plan.is_due(step, plan.log_every):
                # Counted from the step alone, so that a resumed run logs the same means.
                train_loss, accuracy = history.mean((step - 1) % plan.log_every + 1)
                # A skipped step leaves the schedule where it is, unless there is a period.
                scheduled = step - 1 - (0 if config.period else history.skipped())
                values = {
                    "epoch": step / plan.per_epoch,
                    "train_loss": train_loss,
                    "train_accuracy": accuracy,
                    "learning_rate": jnp.asarray(schedule(scheduled)).item(),
                    "bytes_sent": bytes_until(step),  # by one worker since the start
                    "skipped_steps": history.skipped(),
                    **compression_metrics(state.opt_state),
                    **link.metrics(),
                    "steps_per_second": pace.read(step),
                }
                reporter.write(step, values)
                check_divergence(history, step, config, checkpoints)
            with pace.paused():
                if plan.is_due(step, plan.verify_every):
                    watchdog.pause()
                    check_replicas(state, mesh, step, checkpoints)
                if plan.is_due(step, plan.eval_every):
                    watchdog.pause()
                    tests = test_batches(dataset, config.batch_size, *process)
                    tested = evaluate(state.params, state.shared_stats(), tests)
                    reporter.write(step, tested)
                if plan.is_due(step, plan.save_every) and step < plan.total:
                    save(step)
            if (number := received.to_stop_now()) is not None and step < plan.total:
                raise stopped(step, number, checkpoints, save)
        # Saved with the last checkpoint, so that starting the run again gives the same summary.
        summary = Summary(
            test_accuracy=tested["test_accuracy"],
            test_loss=tested["test_loss"],
            test_perplexity=tested["test_perplexity"],
            train_loss=history.mean(plan.per_epoch)[0],
            steps=plan.total,
            skipped_steps=history.skipped(),
            workers=workers_of(mesh),
            compressor=jaxcompress.unparse(compressor),
            bytes_per_step=sent.largest,
            final_bytes_per_step=sent.final,
            dense_bytes_per_step=sent.dense,
            peak_bytes_per_step=sent.peak,
            mean_bytes_per_step=bytes_until(plan.total) / plan.total,
            seconds=round(progress.seconds + time.monotonic() - started, 3),
        )
        save(plan.total, summary)
        reporter.finish(summary)
        return summary


def stopped(
    step: int,
    signal_number: int,
    checkpoints: Checkpoints | None,
    save: Callable[[int], None],
) -> InterruptedRunError:
    """The error that ends a run after `step`, in all processes; the step is saved first."""
    if checkpoints is None:
        return InterruptedRunError(
            f"stopped after step {step}. {describe_newest(checkpoints)}", signal_number
        )
    if checkpoints.newest_step != step:
        save(step)
    return InterruptedRunError(
        f"stopped after step {step}; run the same command again to resume", signal_number
    )


def check_replicas(
    state: TrainState, mesh: Mesh, step: int, checkpoints: Checkpoints | None
) -> None:
    """Raises a `FaultError` on all processes if workers have different models or states."""
    try:
        jaxcompress.assert_replicas_equal(state._asdict(), mesh)
    except ValueError as error:
        raise FaultError(f"after step {step} {error} {describe_newest(checkpoints)}") from error
