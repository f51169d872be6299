"""The reader of compiled programs, on the notations of several backends."""

import pytest

from jaxcompress.profiling.hlo_text import read_hlo

# Of a TPU's text, shortened: tiles and memory spaces in its layouts, and comments that count the
# indices of a tuple.
TPU = """HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[6]{0:T(128)})->f32[6]{0:T(128)}}

%fused_computation (param_0: f32[6]) -> (f32[6], u32[]) {
  %param_0 = f32[6]{0:T(128)S(1)} parameter(0)
  ROOT %pair.1 = (f32[6]{0:T(128)S(1)}, /*index=1*/u32[]{:S(2)}) custom-call(%param_0), custom_call_target="Pair"
}

ENTRY %main.3_spmd (x.1: f32[6]) -> f32[6] {
  %x.1 = f32[6]{0:T(128)} parameter(0), sharding={replicated}, metadata={op_name="x[\\'a\\']"}
  %fusion.2 = (f32[6]{0:T(128)S(1)}, /*index=1*/u32[]{:S(2)}) fusion(%x.1), kind=kCustom, calls=%fused_computation
  ROOT %y = f32[6]{0:T(128)} get-tuple-element(%fusion.2), index=0, metadata={op_name="jit(f)/y" stack_frame_id=3}
}
"""


def test_the_entry_and_the_order_of_its_instructions():
    computations, entry = read_hlo(TPU)
    assert entry == "main.3_spmd"
    assert list(computations) == ["fused_computation", "main.3_spmd"]
    assert list(computations[entry]) == ["x.1", "fusion.2", "y"]


def test_a_tuple_is_one_shape():
    computations, entry = read_hlo(TPU)
    fusion = computations[entry]["fusion.2"]
    assert fusion.shape == "(f32[6]{0:T(128)S(1)}, /*index=1*/u32[]{:S(2)})"
    assert (fusion.opcode, fusion.operands, fusion.called) == (
        "fusion",
        ["x.1"],
        ["fused_computation"],
    )


def test_attributes_are_what_follows_the_operands():
    computations, entry = read_hlo(TPU)
    assert (
        computations[entry]["y"].attributes
        == ', index=0, metadata={op_name="jit(f)/y" stack_frame_id=3}'
    )
    assert computations["fused_computation"]["pair.1"].attributes == ', custom_call_target="Pair"'


@pytest.mark.parametrize(
    ("attributes", "called"),
    [
        ("to_apply=%add.1", ["add.1"]),
        ("condition=%test, body=%body", ["test", "body"]),
        ("called_computations={%a, %b}", ["a", "b"]),
        ("branch_computations={%a, %b}", []),
        ("channel_id=1", []),
    ],
)
def test_each_notation_of_calls(attributes, called):
    text = f"ENTRY %main (x: f32[]) -> f32[] {{\n  ROOT %y = f32[] call(%x), {attributes}\n}}"
    computations, entry = read_hlo(text)
    assert computations[entry]["y"].called == called


def test_a_text_without_an_entry_is_no_program():
    with pytest.raises(ValueError, match="no ENTRY"):
        read_hlo("not a program")
