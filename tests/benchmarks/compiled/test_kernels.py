"""Launches counted in a quoted program."""

from benchmarks.compiled.kernels import kernels, loops

PROGRAM = """\
HloModule jit_step, is_scheduled=true

%fused_add (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %sum = f32[8]{0} add(%p, %p)
}

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %inner = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_add
  %i = s32[] get-tuple-element(%s), index=0
  ROOT %next = (s32[], f32[8]{0}) tuple(%i, %inner)
}

%condition (s: (s32[], f32[8])) -> pred[] {
  %s = (s32[], f32[8]{0}) parameter(0)
  ROOT %go = pred[] constant(true)
}

%command_buffer (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %first = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused_add
  ROOT %second = f32[8]{0} custom-call(%first), custom_call_target="gemm"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %called = f32[8]{0} call(%x), to_apply=%command_buffer
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]{0}) tuple(%zero, %called)
  %loop = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body
  %done = f32[8]{0} get-tuple-element(%loop), index=1
  %all-reduce-start = f32[8]{0} all-reduce-start(%done), to_apply=%fused_add
  %all-reduce-done = f32[8]{0} all-reduce-done(%all-reduce-start)
  ROOT %copy = f32[8]{0} copy(%all-reduce-done)
}
"""


def test_calls_are_followed_and_a_loop_counts_once():
    # The fusion and the library call of the command buffer, the loop, and the copy.
    assert kernels(PROGRAM) == 4


def test_loops_are_counted():
    assert loops(PROGRAM) == 1
