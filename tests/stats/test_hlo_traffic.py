"""XLA's notations, each in a small text: those that a CPU does not print are written out here."""

import pytest

from jaxcompress.stats.hlo_traffic import traffic_of_hlo


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
    assert one(line, others=add) == ("all-reduce", ("float32",), 24, size, 1)


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
    assert one("ROOT %y = f32[48]{0} all-gather(f32[6]{0} %x), replica_groups={}").payload_bytes == 24


def test_a_tuple_is_one_collective_of_several_arrays():
    each = one(
        "%m = u8[5]{0} custom-call(%x)",
        "ROOT %y = (f32[6]{0}, /*index=1*/u8[5]{0}) all-reduce(%x, /*index=1*/%m), replica_groups={}",
    )
    assert (each.dtypes, each.payload_bytes) == (("float32", "uint8"), 29)


def test_a_permute_needs_no_groups():
    assert one("ROOT %y = f32[6]{0} collective-permute(%x), source_target_pairs={{0,1},{1,0}}").group == 2


@pytest.mark.parametrize(
    ("start", "done"),
    [
        ("(f32[6]{0}, f32[48]{0}) all-gather-start(%x), replica_groups={}", "f32[48]{0} all-gather-done(%s)"),
        ("f32[6]{0} all-reduce-start(%x), replica_groups={}, to_apply=%add", "f32[6]{0} all-reduce-done(%s)"),
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


@pytest.mark.parametrize("config", ['backend_config={"known_trip_count":{"n":"7"}}', "known_trip_count={n=7}"])
def test_a_loop_counts_every_round(config):
    assert one(f"{LOOP}, {config}", others=BODY).count == 7


def test_a_loop_of_unknown_length_is_refused_only_if_it_communicates():
    with pytest.raises(ValueError, match="number of rounds is not known"):
        one(LOOP, others=BODY)
    assert traffic_of_hlo(module(LOOP.replace("%body", "%idle"), others=BODY)).collectives == ()


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


def test_a_text_without_an_entry_is_no_program():
    with pytest.raises(ValueError, match="no ENTRY"):
        traffic_of_hlo("not a program")
