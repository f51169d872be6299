"""What a run tells a person in words: what begins, and where it has come when it ends early."""

import jax

from train.program import Program, TrainState, count
from train.setup import Setup


def introduction(setup: Setup, program: Program, state: TrainState) -> str:
    """What is about to be trained, in a line."""
    config = setup.config
    begins = f"goes on after step {setup.progress.step}" if setup.progress.step else "begins"
    return (
        f"{config.name} {begins}: {config.model} ({count(state.params):,} parameters) on {config.dataset}, "
        f"{setup.mesh.size} workers in {jax.process_count()} process(es), {setup.settings['compressor']}; "
        f"a worker sends {program.bytes_per_step:,.0f} bytes per step, {program.dense_bytes_per_step:,.0f} with dense()"
    )


def last_checkpoint(setup: Setup) -> str:
    """Which checkpoint is there at the end of a run that has not come to its last step, in words."""
    if setup.checkpoints is None:
        return "Without --workdir there is no checkpoint."
    newest = setup.checkpoints.newest_step
    return "There is no checkpoint yet." if newest is None else f"The last checkpoint is that of step {newest}."
