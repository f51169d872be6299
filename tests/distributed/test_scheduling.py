"""Which threads get the scheduling policy by which they do not interrupt each other."""

import sys

import pytest
from subprocesses import free_port, joined, lines_of, run_python, run_together

THREADS = """
import os
def policies(threads):
    return {os.sched_getscheduler(int(each)) for each in threads}
earlier = set(os.listdir("/proc/self/task"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is a policy of Linux")
@pytest.mark.parametrize(
    ("platform", "policy"), [("cpu", "SCHED_BATCH"), ("", "SCHED_OTHER")], ids=["cpu", "any"]
)
def test_threads_of_a_cpu_do_not_interrupt_each_other(platform, policy):
    """This process and another one join; the threads of devices and of gloo start afterwards."""
    port = free_port()
    setting = f"import jax; jax.config.update('jax_platforms', {platform!r} or None)\n{THREADS}"
    body = (
        "jaxcompress.assert_equal_across_processes({'x': 1})\n"
        "later = set(os.listdir('/proc/self/task')) - earlier\n"
        f"print(policies(later) == {{os.{policy}}}, os.sched_getscheduler(0) == os.{policy})"
    )
    programs = [setting + joined(body, process, 2, port) for process in (0, 1)]
    assert lines_of(run_together(programs)) == [["True True"]] * 2


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is a policy of Linux")
def test_a_policy_that_a_user_has_chosen_stays():
    program = """
import os, jaxcompress
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
jaxcompress.initialize_processes()
print(os.sched_getscheduler(0) == os.SCHED_IDLE)
"""
    assert lines_of([run_python(program)]) == [["True"]]


@pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is a policy of Linux")
def test_a_process_that_is_alone_by_its_arguments_keeps_its_policy():
    program = """
import jax, jaxcompress, os
jax.config.update("jax_platforms", "cpu")
print(jaxcompress.initialize_processes("127.0.0.1:1", 1, 0))
print(os.sched_getscheduler(0) == os.SCHED_OTHER)
"""
    assert lines_of([run_python(program)]) == [["1", "True"]]
