"""Shares of the backward pass, in small programs whose cycles can be added up by hand."""

import pytest

from benchmarks.compiled.schedule import covered, spans

# A convolution of the backward pass takes 10 cycles here, and anything else 100.
BACKWARD = 'fusion(%x), kind=kLoop, calls=%conv, backend_config={"estimated_cycles":"10"}'
OTHER = 'fusion(%x), kind=kLoop, calls=%add, metadata={op_name="jit(step)/add"}, backend_config={"estimated_cycles":"100"}'
OTHERS = """
%conv (a: f32[6]) -> f32[6] {
  %a = f32[6]{0} parameter(0)
  ROOT %c = f32[6]{0} convolution(%a, %a), metadata={op_name="jit(step)/transpose(jvp(ResNet))/conv"}
}

%add (b: f32[6]) -> f32[6] {
  %b = f32[6]{0} parameter(0)
  ROOT %s = f32[6]{0} add(%b, %b)
}

%begin (p: f32[6]) -> f32[48] {
  %p = f32[6]{0} parameter(0)
  %g = f32[48]{0} all-gather(%p), channel_id=7, replica_groups={}, frontend_attributes={chain_id="0"}, \
backend_config={"async_collective_fusion_config":{}}
  ROOT %t = (f32[6]{0}, f32[48]{0}) custom-call(%g), custom_call_target="AsyncCollectiveStart"
}

%part (q: f32[6]) -> f32[48] {
  %q = f32[6]{0} parameter(0)
  %i = f32[6]{0} fusion(%q), kind=kLoop, calls=%conv
  ROOT %h = f32[48]{0} all-gather(%q), channel_id=7, replica_groups={}, frontend_attributes={chain_id="0"}, \
backend_config={"async_collective_fusion_config":{}}
}
"""


def program(*lines: str) -> str:
    body = "\n".join(f"  %v{place} = f32[6]{{0}} {line}" for place, line in enumerate(lines))
    return (
        f"HloModule step, is_scheduled=true, num_partitions=8\n{OTHERS}\nENTRY %main (x: f32[6]) -> f32[6] {{\n"
        f"  %x = f32[6]{{0}} parameter(0)\n{body}\n}}\n"
    )


def test_a_synchronous_collective_has_nothing_in_between():
    (span,) = spans(program(BACKWARD, "all-reduce(%x), channel_id=1, replica_groups={}", BACKWARD))
    assert span.collective.operation == "all-reduce"
    assert not span.asynchronous
    assert (span.backward_before, span.backward_between, span.step_between) == (0.5, 0, 0)


def test_between_a_start_and_its_end():
    start = "all-to-all-start(%x), channel_id=1, replica_groups={}"
    (span,) = spans(
        program(BACKWARD, start, BACKWARD, OTHER, "all-to-all-done(%v1)", BACKWARD, BACKWARD)
    )
    assert span.asynchronous
    assert (span.backward_before, span.backward_between) == (0.25, 0.25)
    assert span.step_between == pytest.approx(110 / 140)


def test_a_collective_in_parts_lasts_from_the_first_part_to_the_last():
    part = 'fusion(%x), kind=kCustom, calls=%part, backend_config={"estimated_cycles":"10"}'
    begin = "fusion(%x), kind=kCustom, calls=%begin"
    (span,) = spans(program(BACKWARD, begin, BACKWARD, part, BACKWARD))
    assert span.asynchronous
    assert (span.collective.payload_bytes, span.backward_before, span.backward_between) == (
        24,
        0.25,
        0.5,
    )


def test_collectives_come_in_the_order_of_their_starts():
    lines = [
        "all-gather-start(%x), channel_id=5, replica_groups={}",
        BACKWARD,
        "all-reduce(%x), channel_id=3, replica_groups={}",
        "all-gather-done(%v0)",
    ]
    assert [span.collective.operation for span in spans(program(*lines))] == [
        "all-gather",
        "all-reduce",
    ]


def test_after_the_backward_pass():
    (span,) = spans(program(BACKWARD, OTHER, "all-reduce(%x), channel_id=1, replica_groups={}"))
    assert span.backward_before == 1


def test_a_program_without_collectives_has_no_spans():
    assert spans(program(BACKWARD)) == []


def test_a_program_that_is_not_scheduled_is_refused():
    with pytest.raises(ValueError, match="not scheduled"):
        spans(program(BACKWARD).replace("is_scheduled=true, ", ""))


def test_collectives_that_share_a_channel_are_several():
    same = "all-to-all(%x), channel_id=1, replica_groups={}"
    assert [span.backward_before for span in spans(program(same, BACKWARD, same))] == [0, 1]


def test_what_two_collectives_cover_is_counted_once():
    first = "all-to-all-start(%x), channel_id=1, replica_groups={}"
    second = "all-to-all-start(%x), channel_id=2, replica_groups={}"
    lines = [first, BACKWARD, "all-to-all-done(%v0)", second, OTHER, "all-to-all-done(%v3)"]
    one_by_one = spans(program(*lines))
    assert covered(one_by_one) == pytest.approx(sum(one.step_between for one in one_by_one)) == 1
    found = spans(program(first, second, BACKWARD, "all-to-all-done(%v0)", "all-to-all-done(%v1)"))
    assert (
        covered(found)
        == max(one.step_between for one in found)
        < sum(one.step_between for one in found)
    )
