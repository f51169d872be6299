"""All processes mean the same run, or all of them say what differs."""

from subprocesses import free_port, joined, lines_of, run_together

from jaxcompress.distributed.equality import assert_equal_across_processes

COMPARE = """
try:
    jaxcompress.assert_equal_across_processes({fields})
    print("agreed")
except ValueError as error:
    print(error)
"""


def said_by_two(*fields: list[dict]) -> list[list[str]]:
    """What each of two processes prints when they compare these fields, one list entry a
    comparison.
    """
    port = free_port()
    bodies = ["".join(COMPARE.format(fields=one) for one in of_process) for of_process in fields]
    return lines_of(
        run_together([joined(body, place, 2, port) for place, body in enumerate(bodies)])
    )


def test_one_process_agrees_with_itself():
    assert_equal_across_processes({"compressor": "top_k(0.01)"})
    assert_equal_across_processes({})


def test_two_processes_agree_or_both_name_the_field_and_its_values():
    same = {"compressor": "top_k(0.01)", "shapes": "float32[3]"}
    first, second = said_by_two(
        [same, same, {"compressor": "dense()"}, {"model": "größer"}],
        [
            dict(reversed(same.items())),
            same | {"compressor": "top_k(0.02)"},
            {},
            {"model": "größter"},
        ],
    )
    assert first == second
    agreed, other_density, missing, other_length = first
    assert agreed == "agreed"
    assert other_density.startswith("compressor differs between processes")
    assert "process 0: 'top_k(0.01)', process 1: 'top_k(0.02)'" in other_density
    assert "shapes" not in other_density
    assert "process 0: 'dense()', process 1: None" in missing
    assert "process 0: 'größer', process 1: 'größter'" in other_length


def test_processes_with_different_numbers_of_devices_are_told_so():
    port, body = free_port(), COMPARE.format(fields={})
    results = run_together([joined(body, place, 2, port, devices=1 + place) for place in range(2)])
    words = (
        "every process must bring the same number of devices (workers); got process 0: 1, process"
        " 1: 2."
    )
    assert lines_of(results) == [[words], [words]]


def printed_by_both(program: str) -> list[str]:
    """What each of two processes prints, which is the same."""
    port = free_port()
    first, second = lines_of(run_together([joined(program, place, 2, port) for place in range(2)]))
    assert first == second
    return first


SHAPES = """
import optax
rows = 4 + jax.process_index()
params, mesh = {"w": jax.numpy.ones((rows, 4))}, jaxcompress.data_mesh()
try:
    jaxcompress.init_state(jaxcompress.compress(jaxcompress.top_k(0.1)), params, mesh)
except ValueError as error:
    print(error)
"""


def test_processes_with_different_models_are_told_so_before_anything_is_compared():
    first = printed_by_both(SHAPES)
    words = "parameter 'w' differs between processes, so they would not train one model:"
    assert first == [f"{words} process 0: 'float32[4, 4]', process 1: 'float32[5, 4]'."]


SEEDS = """
import optax
params, mesh = {"w": jax.numpy.ones((4, 4))}, jaxcompress.data_mesh()
for seed in (3, jax.process_index()):
    average = jaxcompress.compress(jaxcompress.qsgd(4), seed=seed, min_compression_rate=0)
    try:
        jaxcompress.init_state(average, jaxcompress.replicate(params, mesh), mesh)
        print("agreed")
    except ValueError as error:
        print(error)
"""


def test_processes_with_different_seeds_are_told_so_before_the_first_step():
    first = printed_by_both(SEEDS)
    assert first[0] == "agreed"
    assert first[1].startswith("workers must hold the same")
    assert "Start all with one seed" in first[1]
