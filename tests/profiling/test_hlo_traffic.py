"""XLA's notations, each in a small text: those that a CPU does not print are written out here."""

import pytest

from jaxcompress.profiling.hlo_traffic import traffic_of_hlo


def module(*lines: str, others: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return (
        f"HloModule step, is_scheduled=true, num_partitions=8\n\n{others}\nENTRY %main.1 (x: f32[6]) -> f32[6] {{\n"
        f"  %x = f32[6]{{0}} parameter(0)\n{body}\n}}\n"
    )


def one(*lines: str, others: str = ""):
    (each,) = traffic_of_hlo(module(*lines, others=others)).collectives
    return each


@pytest.mark.parametrize(
    ("groups", "size"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", 2),
        ("{{0,1,2,3,4,5,6,7}}", 8),
        ("{}", 8),
        ("[2,4]<=[8]", 4),
        ("[4,2]<=[2,4]T(1,0)", 2),
        ("mesh['data'=8] {'data'}", 8),
        ("mesh['node'=2,'gpu'=4] {'gpu'}", 4),
        ("mesh['node'=2,'gpu'=4] {'gpu','node'}", 8),
        ("mesh['node'=2,'gpu'=4], device_ids=(0,2,4,6,1,3,5,7) {'node'}", 2),
        ("mesh['data'=8] {'data':(2)4}", 4),
    ],
)
def test_each_notation_of_groups(groups, size):
    line = f"ROOT %y = f32[6]{{0}} all-reduce(%x), channel_id=1, replica_groups={groups}, to_apply=%add"
    add = "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %s = f32[] add(%a, %a)\n}\n"
    assert one(line, others=add) == ("all-reduce", ("float32",), 24, size, 1, ())


def test_unknown_groups_are_an_error():
    with pytest.raises(ValueError, match="not known here"):
        one("ROOT %y = f32[6]{0} all-gather(%x), replica_groups=ring(8)")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ("f32[3,2]{1,0:T(8,128)S(1)}", "float32", 24),
        ("bf16[6]{0}", "bfloat16", 12),
        ("pred[6]{0}", "bool", 6),
        ("s4[6]{0}", "int4", 6),
        ("u4[7]{0:E(4)}", "uint4", 4),
        ("f8e4m3fn[6]{0}", "float8_e4m3fn", 6),
        ("c64[6]{0}", "complex64", 48),
        ("u16[]", "uint16", 2),
        ("s32[0]{0}", "int32", 0),
    ],
)
def test_each_dtype_has_its_size(shape, dtype, size):
    gather = f"ROOT %y = {shape} all-gather(%m), replica_groups={{}}, dimensions={{0}}"
    each = one(f"%m = {shape} bitcast(%x)", gather)
    assert (each.dtypes, each.payload_bytes) == ((dtype,), size)


def test_operands_may_be_printed_with_their_types():
    assert (
        one("ROOT %y = f32[48]{0} all-gather(f32[6]{0} %x), replica_groups={}").payload_bytes == 24
    )


def test_a_tuple_is_one_collective_of_several_arrays():
    each = one(
        "%m = u8[5]{0} custom-call(%x)",
        "ROOT %y = (f32[6]{0}, /*index=1*/u8[5]{0}) all-reduce(%x, /*index=1*/%m), replica_groups={}",
    )
    assert (each.dtypes, each.payload_bytes) == (("float32", "uint8"), 29)


def test_a_permute_needs_no_groups():
    assert (
        one("ROOT %y = f32[6]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}").group
        == 2
    )


@pytest.mark.parametrize(
    ("start", "done"),
    [
        (
            "(f32[6]{0}, f32[48]{0}) all-gather-start(%x), replica_groups={}",
            "f32[48]{0} all-gather-done(%s)",
        ),
        (
            "f32[6]{0} all-reduce-start(%x), replica_groups={}, to_apply=%add",
            "f32[6]{0} all-reduce-done(%s)",
        ),
        (
            "(f32[6]{0}, f32[6]{0}, u32[], u32[]) collective-permute-start(%x), source_target_pairs={{0,1}}",
            "f32[6]{0} collective-permute-done(%s)",
        ),
        (
            "((f32[6]{0}), f32[1]{0}, u32[]) async-start(%x), calls=%hidden",
            "f32[1]{0} async-done(%s), calls=%hidden",
        ),
    ],
)
def test_an_asynchronous_pair_counts_once(start, done):
    others = (
        "%hidden (p: f32[6]) -> f32[1] {\n  %p = f32[6]{0} parameter(0)\n"
        "  ROOT %r = f32[1]{0} reduce-scatter(%p), replica_groups={}, dimensions={0}, to_apply=%add\n}\n\n"
        "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n  ROOT %s = f32[] add(%a, %a)\n}\n"
    )
    assert one(f"%s = {start}", f"ROOT %d = {done}", others=others).payload_bytes == 24


BODY = """%body (p: f32[6]) -> f32[6] {
  %p = f32[6]{0} parameter(0)
  ROOT %r = f32[6]{0} all-reduce(%p), replica_groups={{0,1}}, to_apply=%add
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  ROOT %s = f32[] add(%a, %a)
}

%test (p.1: f32[6]) -> pred[] {
  %p.1 = f32[6]{0} parameter(0)
  ROOT %c = pred[] constant(true)
}

%idle (p.2: f32[6]) -> f32[6] {
  ROOT %p.2 = f32[6]{0} parameter(0)
}
"""
LOOP = "ROOT %w = f32[6]{0} while(%x), condition=%test, body=%body"


@pytest.mark.parametrize(
    "config", ['backend_config={"known_trip_count":{"n":"7"}}', "known_trip_count={n=7}"]
)
def test_a_loop_counts_every_round(config):
    assert one(f"{LOOP}, {config}", others=BODY).count == 7


def test_a_loop_of_unknown_length_is_refused_only_if_it_communicates():
    with pytest.raises(ValueError, match=r"number of rounds is not known.*rounds="):
        one(LOOP, others=BODY)
    assert traffic_of_hlo(module(LOOP.replace("%body", "%idle"), others=BODY)).collectives == ()


@pytest.mark.parametrize("copied", [False, True])
def test_a_loop_that_its_body_ends_is_a_branch(copied):
    state = "(f32[6]{0}, pred[])"
    others = f"""
%step (p: {state}) -> {state} {{
  %p = {state} parameter(0)
  %x = f32[6]{{0}} get-tuple-element(%p), index=0
  %r = f32[6]{{0}} all-reduce(%x), replica_groups={{{{0,1}}}}, to_apply=%add
  %no = pred[] constant(false)
  %copy = pred[] copy(%no)
  ROOT %t = {state} tuple(%r, %{"copy" if copied else "no"})
}}

%goes_on (p: {state}) -> pred[] {{
  %p = {state} parameter(0)
  ROOT %g = pred[] get-tuple-element(%p), index=1
}}
"""
    loop = f"ROOT %w = {state} while(%x), condition=%goes_on, body=%step"
    assert one(loop, others=BODY + others).count == 1
    text = module(loop, others=BODY + others)
    assert traffic_of_hlo(text, branch=lambda branches: branches[0]).collectives == ()
    with pytest.raises(ValueError, match="number of rounds is not known"):
        one(loop, others=BODY + others.replace("constant(false)", "constant(true)"))


def test_rounds_are_those_of_loops_of_unknown_length_only():
    known = LOOP.replace("ROOT %w", "%v") + ", known_trip_count={n=7}"
    counted = traffic_of_hlo(module(known, LOOP, others=BODY), rounds=3).collectives
    assert [each.count for each in counted] == [7, 3]
    with pytest.raises(ValueError, match="rounds is the rounds of each loop"):
        traffic_of_hlo(module(LOOP, others=BODY), rounds=-1)


@pytest.mark.parametrize(
    "conditional",
    [
        "conditional(%i, %x, %x), branch_computations={%idle, %body}",
        "conditional(%i, %x, %x), true_computation=%body, false_computation=%idle",
    ],
)
def test_of_several_branches_the_largest_counts_unless_another_is_chosen(conditional):
    text = module("%i = s32[] constant(0)", f"ROOT %c = f32[6]{{0}} {conditional}", others=BODY)
    assert traffic_of_hlo(text).payload_bytes == 24
    assert traffic_of_hlo(text, branch=lambda branches: branches[0]).payload_bytes == 0
    assert traffic_of_hlo(text, branch=lambda branches: branches[1]).payload_bytes == 24


def test_called_computations_are_followed():
    assert one("ROOT %y = f32[6]{0} call(%x), to_apply=%body", others=BODY).payload_bytes == 24


# A TPU runs an all-gather in parts, each fused with a computation. Of such a program, with a matrix
# product between its start and its end; only what names neither operands nor computations is left
# out.
PARTS = """%fused_computation.7 (param_0.15: u32[1,1,512]) -> (u32[1,1,512], u32[8,1,512], s32[2], u32[]) {
  %param_0.15 = u32[1,1,512]{2,1,0:T(1,128)S(1)} parameter(0)
  %all-gather.6 = u32[8,1,512]{2,1,0:T(1,128)} all-gather(%param_0.15), channel_id=1, \
replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, \
backend_config={"async_collective_fusion_config":{"flag_start":"-1","flag_end":"-1"}}
  ROOT %custom-call.1 = (u32[1,1,512]{2,1,0:T(1,128)S(1)}, u32[8,1,512]{2,1,0:T(1,128)}, s32[2]{0:S(4)}, \
u32[]{:S(2)}) custom-call(%all-gather.6), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion.13 (param_0.18: u32[1,1,512], param_1.6: u32[8,1,512], param_9.2: bf16[64,64]) -> \
(bf16[64,64], u32[8,1,512]) {
  %param_9.2 = bf16[64,64]{1,0:T(8,128)(2,1)S(1)} parameter(2)
  %convolution.13 = bf16[64,64]{1,0:T(8,128)(2,1)} convolution(%param_9.2, %param_9.2), dim_labels=bf_io->bf
  %param_0.18 = u32[1,1,512]{2,1,0:T(1,128)S(1)} parameter(0)
  %param_1.6 = u32[8,1,512]{2,1,0:T(1,128)} parameter(1)
  %all-gather.8 = u32[8,1,512]{2,1,0:T(1,128)} all-gather(%param_0.18), channel_id=1, \
replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, \
backend_config={"async_collective_fusion_config":{"flag_start":"2","flag_end":"8"}}
  ROOT %tuple.8 = (bf16[64,64]{1,0:T(8,128)(2,1)S(1)}, u32[8,1,512]{2,1,0:T(1,128)}) tuple(%convolution.13, \
%all-gather.8)
}

%fused_computation.14 (param_0.34: u32[1,1,512], param_1.22: u32[8,1,512]) -> u32[8,1,512] {
  %param_0.34 = u32[1,1,512]{2,1,0:T(1,128)S(1)} parameter(0)
  %param_1.22 = u32[8,1,512]{2,1,0:T(1,128)} parameter(1)
  %all-gather.20 = u32[8,1,512]{2,1,0:T(1,128)} all-gather(%param_0.34), channel_id=1, \
replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true, frontend_attributes={chain_id="0"}, \
backend_config={"async_collective_fusion_config":{"flag_start":"2","flag_end":"8"}}
  ROOT %custom-call.3 = u32[8,1,512]{2,1,0:T(1,128)} custom-call(%param_0.34, %param_1.22, %all-gather.20), \
custom_call_target="AsyncCollectiveDone"
}
""".replace("\\\n", "")


def test_a_collective_in_parts_counts_once():
    each = one(
        "%m = u32[1,1,512]{2,1,0:T(1,128)} bitcast(%x)",
        "%async-collective-start = (u32[1,1,512], u32[8,1,512]) fusion(%m), kind=kCustom, calls=%fused_computation.7",
        "%fusion.13 = (bf16[64,64], u32[8,1,512]) fusion(%m), kind=kCustom, calls=%async_collective_fusion.13",
        "ROOT %async-collective-done = u32[8,1,512] fusion(%m), kind=kCustom, calls=%fused_computation.14",
        others=PARTS,
    )
    assert each == ("all-gather", ("uint32",), 2048, 8, 1, ())


def test_a_gather_that_a_tpu_makes_a_sum_counts_as_one():
    # Each worker writes its part into zeros, and all are added: twice what a ring all-gather sends.
    each = one(
        "%m = u32[24]{0:T(128)S(1)} dynamic-update-slice(%x, %x, %x)",
        "ROOT %all-reduce.7 = u32[24]{0:T(128)} all-reduce(%m), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, "
        "use_global_device_ids=true, to_apply=%add.6, "
        'backend_config={"scoped_memory_configs":[{"memory_space":"0","offset":"0","size":"67108864"}],'
        '"collective_algorithm_config":{"emitter":"RotatedPincerEmitter","strategy":"UniDirection1DRingStrategy"}}',
        others="%add.6 (a: u32[], b: u32[]) -> u32[] {\n  %a = u32[] parameter(0)\n  ROOT %s = u32[] add(%a, %a)\n}\n",
    )
    assert (each.operation, each.payload_bytes, each.wire_bytes) == ("all-reduce", 96, 168)
