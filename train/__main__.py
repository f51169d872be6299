"""The command line: ``python -m train [CONFIG.yaml] [--field value …]``.

Exit codes: 0 after a summary; 1 for a run that diverged, and for a bug, with a traceback; 2 for
bad input; 75 for a fault, after which the same command may succeed; 130 and 143 for a run that was
stopped by Ctrl-C or SIGTERM.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import jaxcompress
from train.config import load_config
from train.config_rules import check_config
from train.errors import (
    EXIT_CODE_BAD_INPUT,
    EXIT_CODE_BUG,
    EXIT_CODE_DIVERGED,
    EXIT_CODE_FAULT,
    DivergedError,
    FaultError,
    InputError,
)
from train.loop import train
from train.metrics import to_json
from train.processes import is_main_process
from train.signals import InterruptedRunError, record_ctrl_c
from train.supervisor import supervise


def main(arguments: Sequence[str]) -> int:
    """Runs a command line and returns the exit code."""
    try:
        with record_ctrl_c() as earlier:
            config = load_config(arguments)
            check_config(config)
            if config.supervise:
                return supervise(config, arguments)
            summary = train(config, earlier)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE_BAD_INPUT
    except DivergedError as error:
        print(f"diverged: {error}", file=sys.stderr)
        return EXIT_CODE_DIVERGED
    except FaultError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODE_FAULT
    except InterruptedRunError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 128 + signal.SIGINT
    except Exception as error:
        if jaxcompress.is_connection_error(error):
            # All processes live, and yet one could not reach another.
            print(f"error: a collective has failed: {str(error)[:150]}", file=sys.stderr)
            return EXIT_CODE_FAULT
        traceback.print_exc()
        return EXIT_CODE_BUG
    if is_main_process():
        print(to_json(summary), flush=True)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        # JAX would wait for the other processes at exit, and they may wait for this one; others
        # would print stack traces of what has been reported.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
