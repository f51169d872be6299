"""The rules for the settings of several processes: joined by hand, or supervised."""

from train.config import Config
from train.errors import InputError


def check_processes(config: Config) -> None:
    """Raises an `InputError` unless the three options for several processes are consistent."""
    given = [
        option is not None
        for option in (config.coordinator, config.num_processes, config.process_id)
    ]
    if any(given) and not all(given):
        raise InputError(
            f"coordinator={config.coordinator}, num_processes={config.num_processes} and"
            f" process_id={config.process_id} go together. Give all three, or none if JAX detects"
            " the cluster."
        )
    if config.num_processes is None or config.process_id is None:
        return
    if not 0 <= config.process_id < config.num_processes:
        raise InputError(
            f"process_id must be from 0 to {config.num_processes - 1}; got {config.process_id}."
        )
    if config.workers is not None:
        check_workers(config.workers, config.num_processes)


def check_supervise(config: Config) -> None:
    """Raises an `InputError` unless this process can start all others and resume them."""
    if config.num_processes is None or config.workdir is None:
        raise InputError(
            "supervise starts the processes of a run, and resumes them from its checkpoints; got"
            f" num_processes={config.num_processes} and workdir={config.workdir}. Give both."
        )
    if config.coordinator is not None or config.process_id is not None:
        raise InputError(
            f"supervise gives each process its own; got coordinator={config.coordinator} and"
            f" process_id={config.process_id}. Omit them."
        )
    workers = config.num_processes if config.workers is None else config.workers
    check_workers(workers, config.num_processes)
    if config.min_workers is not None and config.min_workers > workers:
        raise InputError(
            f"min_workers is at most the {workers} workers of the run; got {config.min_workers}."
        )


def check_workers(workers: int, processes: int) -> None:
    """Raises an `InputError` unless every process gets the same number of workers."""
    if workers % processes:
        raise InputError(
            "workers, of all processes together, must be a multiple of num_processes; got"
            f" {workers} workers for {processes} processes."
        )
