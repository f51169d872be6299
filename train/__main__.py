"""The command line: ``python -m train [CONFIG.yaml] [--field value …]``.

Exit codes: 0 after a summary; 1 for a run that diverged, and for a bug, with a traceback; 2 for
bad input; 130 and 143 for a run that was stopped by Ctrl-C or SIGTERM.
"""

import os
import signal
import sys
from collections.abc import Sequence

import jax

from train.config import load_config
from train.errors import EXIT_CODE_BAD_INPUT, EXIT_CODE_DIVERGED, DivergedError, InputError
from train.loop import train
from train.metrics import to_json
from train.processes import is_main_process
from train.signals import InterruptedRunError, record_ctrl_c


def main(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code."""
    try:
        with record_ctrl_c() as earlier:
            summary = train(load_config(arguments), earlier)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE_BAD_INPUT
    except DivergedError as error:
        print(f"diverged: {error}", file=sys.stderr)
        return EXIT_CODE_DIVERGED
    except InterruptedRunError as error:
        print(error, file=sys.stderr, flush=True)
        if jax.process_count() > 1:
            # JAX would wait for the other processes at exit, and they may wait for this one.
            os._exit(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped before the first step", file=sys.stderr)
        return 128 + signal.SIGINT
    if is_main_process():
        print(to_json(summary), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
