"""Processes that are killed, stopped, or told to end."""

import functools
import random
import signal
import time
from pathlib import Path

from benchmarks.faults.cluster import STEPS_PER_EPOCH, Cluster, newest_step
from benchmarks.faults.scenario import (
    Found,
    Scenario,
    reference,
    require,
    require_identical,
    require_named,
    steps_lost,
)

MANY_EPOCHS = ("--epochs", "1000", "--checkpoint-every-steps", "20")
ADAM_RATE = ("--learning-rate", "0.003")
# Every kind of memory, and every optimizer; those without a memory send dense gradients.
KEPT_STATES = {
    "top_k": (),
    "power_sgd": ("--compressor", "error_feedback(power_sgd(2))"),
    "two_phase(sign)": ("--compressor", "error_feedback(two_phase(sign()))"),
    "int8 memory": ("--compressor", "error_feedback(top_k(0.01), dtype='int8')"),
    "bfloat16 memory": ("--compressor", "error_feedback(top_k(0.01), dtype='bfloat16')"),
    "ef21": ("--compressor", "ef21(top_k(0.1))"),
    "ef21_sgdm": ("--compressor", "ef21_sgdm(top_k(0.1))"),
    "control_variate": ("--compressor", "control_variate(random_k(0.1, rescale=True), 0.1)"),
    "adaptive": ("--compressor", "error_feedback(adaptive(gain(0.5), top_k(0.1), top_k(0.01)))"),
    "float16": ("--precision", "float16"),
    "period": ("--period", "5", "--learning-rate", "0.02"),
    "dgc": ("--compressor", "top_k(0.01)", "--optimizer", "dgc"),
    **{name: ("--optimizer", name, *ADAM_RATE) for name in ("rmsprop", "adam", "adamw", "muon")},
    "sign_sgd": ("--optimizer", "sign_sgd", *ADAM_RATE),
    **{
        name: ("--optimizer", name, "--compressor", "error_feedback(sign())", *ADAM_RATE)
        for name in ("onebit_adam", "onebit_lamb", "zero_one_adam")
    },
}
EPOCHS = 12


def killed_one(folder: Path, rank: int) -> Found:
    """SIGKILL of one of three processes."""
    with Cluster(folder, *MANY_EPOCHS, processes=3) as cluster:
        cluster.wait_for_step(30)
        cluster.signal(signal.SIGKILL, [rank])
        ended = cluster.wait(60.0)
        others = [each for each in range(3) if each != rank]
        require(len(ended) == 3, f"still running: {set(others) - ended.keys()}")
        seconds = max(each.seconds for each in ended.values())
        require(seconds < 20.0, f"it took {seconds:.1f} s")
        if rank == 0:
            # JAX aborts the others as soon as its coordination service, in process 0, is gone.
            require({ended[each].code for each in others} == {-signal.SIGABRT}, ended)
            return Found(
                "others aborted by JAX, with its own message", seconds, steps_lost(cluster)
            )
        for other in others:
            line = require_named(cluster, ended, other, rank)
        return Found(f"others: “{line.partition('. ')[0]}”", seconds, steps_lost(cluster))


def killed_all(folder: Path, kind: str, kills: int, seed: int) -> Found:
    """SIGKILL of both processes at random times, and the same command again, until it finishes."""
    options, draw = KEPT_STATES[kind], random.Random(seed)
    options = (*options, "--checkpoint-every-steps", "10")
    epochs = max(EPOCHS, 3 * kills)  # so that the run does not finish before the last of them
    reference(epochs, 2, options)  # compiles, too
    lost = []
    for _ in range(kills):
        with Cluster(folder, "--epochs", str(epochs), *options) as cluster:
            began = newest_step(cluster.workdir)
            cluster.wait_for_step(min(began + 5, epochs * STEPS_PER_EPOCH))
            time.sleep(draw.uniform(0.0, 1.0))  # a save takes a third of the time
            cluster.kill()
            lost.append(steps_lost(cluster))
    with Cluster(folder, "--epochs", str(epochs), *options) as cluster:
        ended = cluster.finish()
        require([each.code for each in ended.values()] == [0, 0], cluster.errors(0).read_text())
    require_identical(cluster.workdir, epochs, 2, *options)
    return Found(f"bit-identical end after {kills} kills", None, max(lost))


def stopped_for_ever(folder: Path, rank: int) -> Found:
    """SIGSTOP of one of three processes."""
    timeout = ("--step-timeout", "10")
    with Cluster(folder, *MANY_EPOCHS, *timeout, processes=3) as cluster:
        cluster.wait_for_step(30)
        cluster.signal(signal.SIGSTOP, [rank])
        others = [each for each in range(3) if each != rank]
        ended = cluster.wait(60.0, others)
        require(len(ended) == 2, "the others did not end")
        for other in others:
            line = require_named(cluster, ended, other, rank)
        seconds = max(each.seconds for each in ended.values())
        return Found(
            f"with {' '.join(timeout)}: “{line.partition('. ')[0]}”", seconds, steps_lost(cluster)
        )


def stopped_for(folder: Path, seconds: float) -> Found:
    """SIGSTOP of one of two processes, and SIGCONT."""
    epochs = 20
    with Cluster(folder, "--epochs", str(epochs)) as cluster:
        cluster.wait_for_step(30)
        cluster.signal(signal.SIGSTOP, [1])
        time.sleep(seconds)
        cluster.signal(signal.SIGCONT, [1])
        ended = cluster.finish()
        require([each.code for each in ended.values()] == [0, 0], cluster.errors(0).read_text())
    require_identical(cluster.workdir, epochs, 2)
    return Found("goes on, bit-identical end", None, 0)


def terminated_one(folder: Path) -> Found:
    """SIGTERM to one of three processes, as of a scheduler that takes its machine away."""
    with Cluster(folder, "--epochs", str(EPOCHS), processes=3) as cluster:
        cluster.wait_for_step(30)
        cluster.signal(signal.SIGTERM, [1])
        ended = cluster.wait(60.0)
        require(len(ended) == 3, "not all have ended")
        codes = {each.code for each in ended.values()}
        require(codes == {128 + signal.SIGTERM}, codes)
        lines = {cluster.last_line(rank) for rank in range(3)}
        require(len(lines) == 1, lines)
        seconds, lost = max(each.seconds for each in ended.values()), steps_lost(cluster)
    with Cluster(folder, "--epochs", str(EPOCHS), processes=3) as cluster:
        cluster.finish()
    require_identical(cluster.workdir, EPOCHS, 3)
    return Found("all save the same step, code 143; resumed bit-identical", seconds, lost)


def supervised(folder: Path) -> Found:
    """SIGKILL of one supervised process of three: two go on, and then three."""
    options = ("--supervise", "--num-processes", "3", "--min-workers", "2")
    options += ("--rejoin-seconds", "25", "--epochs", "1000", "--checkpoint-every-steps", "10")
    with Cluster(folder, *options, "--workers", "3", processes=1) as cluster:
        cluster.wait_for_step(30)
        reached = cluster.step()
        cluster.signal_child(signal.SIGKILL, 1)
        seconds, line = cluster.wait_for_line("run resumes after step", 120.0)
        require("with 2 workers instead of 3" in line, line)
        lost = max(0, reached - int(line.split()[4]))
        _, line = cluster.wait_for_line("run resumes after step", 300.0, count=2)
        require("with 3 workers instead of 2" in line, line)
        cluster.signal(signal.SIGTERM, [0])
        ended = cluster.wait(60.0)
        require(ended[0].code == 128 + signal.SIGTERM, ended)
    return Found(f"trains with 2 after {seconds:.0f} s, later with 3 again", seconds, lost)


def supervisor_killed(folder: Path) -> Found:
    """SIGKILL of the supervisor, which can tell its processes nothing any more."""
    options = ("--supervise", "--num-processes", "2", *MANY_EPOCHS)
    with Cluster(folder, *options, "--workers", "2", processes=1) as cluster:
        cluster.wait_for_step(30)
        children = cluster.children()
        cluster.signal(signal.SIGKILL, [0])
        while any(Path(f"/proc/{child}").exists() for child in children):
            require(time.monotonic() < cluster.fault_at + 20.0, "its processes did not end")
            time.sleep(0.02)
        seconds, lost = time.monotonic() - cluster.fault_at, steps_lost(cluster)
        require(lost == 0, f"{lost} steps are in no checkpoint")
    return Found("its processes save the same step, and end", seconds, lost)


SCENARIOS = {
    **{
        f"killed_{rank}": Scenario(
            f"SIGKILL of process {rank} of 3",
            "others end within 20 s",
            functools.partial(killed_one, rank=rank),
        )
        for rank in (0, 1, 2)
    },
    **{
        f"stopped_{rank}": Scenario(
            f"SIGSTOP of process {rank} of 3, for ever",
            "others end, and name it",
            functools.partial(stopped_for_ever, rank=rank),
        )
        for rank in (0, 1)
    },
    "stopped_for_30_s": Scenario(
        "SIGSTOP of process 1 of 2 for 30 s",
        "goes on as if nothing had been",
        functools.partial(stopped_for, seconds=30.0),
    ),
    "terminated": Scenario(
        "SIGTERM to process 1 of 3", "all save the same step and end with 143", terminated_one
    ),
    "supervised": Scenario(
        "SIGKILL of process 1 of 3, with `--supervise`", "goes on with 2, then with 3", supervised
    ),
    "supervisor": Scenario(
        "SIGKILL of the supervisor of 2 processes", "they save and end", supervisor_killed
    ),
    **{
        f"killed_all_{kind}": Scenario(
            f"SIGKILL of all, at random times: {kind}",
            "bit-identical end",
            functools.partial(killed_all, kind=kind, kills=20 if kind == "top_k" else 5, seed=0),
        )
        for kind in KEPT_STATES
    },
}
