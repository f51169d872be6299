"""The training loop: step, and when it is due, log, evaluate, save; and the summary at the end."""

import contextlib
import dataclasses
import time
from typing import NoReturn

import jax
import jax.numpy as jnp
import optax

import jaxcompress
from train.config import Config
from train.console import Screen, metrics_line
from train.data.batches import test_batches, train_batches
from train.data.catalogue import load_dataset
from train.data.dataset import Dataset
from train.errors import DivergedError
from train.interruption import InterruptedRunError, Interruption, noticed
from train.messages import introduction, last_checkpoint
from train.metrics import MetricsLog, Summary
from train.models.catalogue import build_model
from train.optimizer import make_schedule
from train.plan import Plan, make_plan
from train.processes import axes_of, is_main_process, together
from train.program import TrainState, build_program
from train.progress import History, Progress
from train.setup import Setup, prepare
from train.task import Evaluation


def run(config: Config, earlier: Interruption | None = None) -> Summary:
    """Trains as `config` says, from where an earlier part of the same run has ended; a run that is over stays over."""
    with contextlib.ExitStack() as at_end:
        setup = prepare(config, at_end)
        if setup.progress.summary is not None:
            return setup.progress.summary
        with together():
            dataset = load_dataset(config.dataset, config.data_dir, config.context)
            plan = make_plan(config, dataset)
        loop = Loop(setup, dataset, plan)
        at_end.callback(loop.close)
        return loop.run(at_end.enter_context(noticed(earlier)))


class Loop:
    """One run, from its first step in this process to its summary."""

    def __init__(self, setup: Setup, dataset: Dataset, plan: Plan):
        """Compiles the step and puts everything where the last checkpoint left it."""
        self.setup, self.dataset, self.plan = setup, dataset, plan
        self.axes = axes_of(setup.mesh)
        config, progress = setup.config, setup.progress
        self.schedule = make_schedule(config, plan.per_epoch, plan.total)
        sample = next(self._train_batches())
        model = build_model(config.model, dataset.num_classes, sample["inputs"].shape[1:], config.precision)
        self.evaluation = Evaluation(model, setup.mesh)
        state, self.program = build_program(setup, model, self.schedule, sample)
        self.batches = self._train_batches()
        if setup.checkpoints is not None and progress.data is not None:
            state = TrainState(**setup.checkpoints.restore(state._asdict()))
            self.batches.set_state(progress.data)
        self.state: TrainState = state
        length = max(plan.per_epoch, plan.log_every, config.max_skipped_steps + 1)
        self.history = History(length, progress.history)
        self.tested: dict[str, float] = {}
        with together():
            self.log = MetricsLog(setup.workdir if is_main_process() else None, progress.step)
        self.screen = Screen(config.name, progress.step, plan.total, shown=is_main_process())
        self.screen.line(introduction(setup, self.program, state))

    def run(self, interruption: Interruption) -> Summary:
        """Takes the steps that are left; what is due after a step is saved last, so that a checkpoint knows it all."""
        plan = self.plan
        self.started = self.logged_at = time.monotonic()
        self.logged_step = self.setup.progress.step
        for step in range(self.setup.progress.step + 1, plan.total + 1):
            self._take_step()
            if plan.is_due(step, plan.log_every):
                self._log(step)
            if plan.is_due(step, plan.eval_every):
                self._evaluate(step)
            if plan.is_due(step, plan.save_every) and step < plan.total:
                self._save(step)
            if interruption.signal_number is not None and step < plan.total:
                self._stop(step, interruption.signal_number)
        # Made once and saved: a run that is over tells the same summary whenever it is started again.
        summary = self._summary()
        self._save(plan.total, summary)
        return summary

    def _stop(self, step: int, signal_number: int) -> NoReturn:
        """Ends the run after `step`, with a checkpoint of it where that takes no other process."""
        checkpoints = self.setup.checkpoints
        if checkpoints is None or jax.process_count() > 1:
            # The others may be in another step, and a checkpoint needs them all in the same one.
            raise InterruptedRunError(f"stopped after step {step}. {last_checkpoint(self.setup)}", signal_number)
        if checkpoints.newest_step != step:
            self._save(step)
        raise InterruptedRunError(f"stopped after step {step}; the same command goes on from there", signal_number)

    def close(self) -> None:
        """Ends the files and gives the terminal back."""
        self.log.close()
        self.screen.close()

    def _take_step(self) -> None:
        """Sends one step on its way; while the devices work, the host makes the next batch."""
        batch = jaxcompress.shard_batch(next(self.batches), self.setup.mesh, self.axes)
        *state, metrics = self.program.step(*self.state, batch)
        self.state = TrainState(*state)
        self.history.add(metrics)
        self.screen.step()

    def _log(self, step: int) -> None:
        """Writes the training metrics, means over the steps since the last line."""
        # From the step alone, so that a run that was resumed in between logs the same means.
        loss, accuracy = self.history.mean((step - 1) % self.plan.log_every + 1)
        now = time.monotonic()
        values = {
            "epoch": step / self.plan.per_epoch,
            "train_loss": loss,
            "train_accuracy": accuracy,
            "learning_rate": jnp.asarray(self.schedule(step - 1)).item(),
            "bytes_sent": step * self.program.bytes_per_step,  # by one worker since the start; of a switch, at most
            "skipped_steps": self._skipped_steps(),
            **monitored(self.state.opt_state),
            "steps_per_second": (step - self.logged_step) / (now - self.logged_at),
        }
        self.logged_at, self.logged_step = now, step
        self._write(step, values)
        self._check_finite(step)

    def _check_finite(self, step: int) -> None:
        """Raises a `DivergedError` if steps up to `step` are not finite; on all processes, for they average them."""
        config = self.setup.config
        skipped, skipped_ago = self.history.longest_skipped()
        if found := self.history.not_finite():
            ago, loss = found
            told = f"the training loss of step {step - ago} is {loss}"
        elif skipped > config.max_skipped_steps:
            told = (
                f"{skipped} steps in a row, up to step {step - skipped_ago}, had gradients that are not finite and "
                f"were skipped (at most {config.max_skipped_steps}, --max-skipped-steps)"
            )
        else:
            return
        raise DivergedError(
            f"{told}, so the run stops. Lower --learning-rate ({config.learning_rate}) or add --warmup-epochs "
            f"({config.warmup_epochs}); with another --workdir, for that is another run. {last_checkpoint(self.setup)}"
        )

    def _skipped_steps(self) -> int:
        """Steps that were not taken, over all parts of the run."""
        return int(jaxcompress.skipped_steps(self.state.opt_state)["skipped"])

    def _evaluate(self, step: int) -> None:
        """Evaluates on the whole test set."""
        config = self.setup.config
        batches = test_batches(self.dataset, config.batch_size, jax.process_index(), jax.process_count())
        self.tested = self.evaluation(self.state.params, self.state.batch_stats, batches)
        self._write(step, self.tested)

    def _save(self, step: int, summary: Summary | None = None) -> None:
        """Saves a checkpoint; that of the last step holds the summary."""
        if self.setup.checkpoints is None:
            return
        self._check_finite(step)
        progress = Progress(
            step=step,
            data=self.batches.get_state(),
            history=self.history.read(),
            seconds=self._seconds(),
            summary=summary,
        )
        record = {"settings": self.setup.settings, "progress": dataclasses.asdict(progress)}
        self.setup.checkpoints.save(step, self.state._asdict(), record)

    def _summary(self) -> Summary:
        """The result of the run."""
        return Summary(
            test_accuracy=self.tested["test_accuracy"],
            test_loss=self.tested["test_loss"],
            test_perplexity=self.tested["test_perplexity"],
            train_loss=self.history.mean(self.plan.per_epoch)[0],
            steps=self.plan.total,
            skipped_steps=self._skipped_steps(),
            workers=self.setup.mesh.size,
            compressor=jaxcompress.unparse(self.setup.compressor),
            bytes_per_step=self.program.bytes_per_step,
            final_bytes_per_step=self.program.final_bytes_per_step,
            dense_bytes_per_step=self.program.dense_bytes_per_step,
            seconds=round(self._seconds(), 3),
        )

    def _seconds(self) -> float:
        """The time in the loop, over all parts of the run."""
        return self.setup.progress.seconds + time.monotonic() - self.started

    def _write(self, step: int, values: dict[str, float]) -> None:
        """Writes metrics to the files and the screen."""
        self.log.write(step, values)
        self.screen.line(metrics_line(step, self.plan.total, values))

    def _train_batches(self):
        """This process's rows of the training batches, from the first."""
        config = self.setup.config
        return train_batches(self.dataset, config.batch_size, config.seed, jax.process_index(), jax.process_count())


@jax.jit
def _means(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The mean over the workers of each value."""
    return jax.tree.map(jnp.mean, values)


def monitored(opt_state: optax.OptState) -> dict[str, float]:
    """What the compressor's monitor saw in the last step, mean over the workers."""
    return jax.tree.map(float, jax.device_get(_means(jaxcompress.monitor_metrics(opt_state))))
