# SPDX-License-Identifier: MIT
#
# The converter of examples/llama.cpp writes what the GGUF specification says: its file is read
# back by that and nothing of its own, and holds the values of the safetensors file.

. "$MOETRACE_SRCDIR/tests/support/lib.sh"
need_command python3

convert() {
	python3 "$MOETRACE_SRCDIR/examples/llama.cpp/convert.py" "$@"
}

expect_ok convert "$tinymoe/tinymoe.safetensors" "$tmp/tiny.gguf" --outtype f16
expect_match "$tmp/out" '74 tensors'
cat >"$tmp/read.py" <<'END'
import json, struct, sys

data = open(sys.argv[1], "rb").read()
source = open(sys.argv[2], "rb").read()
n_header = int.from_bytes(source[:8], "little")
header = json.loads(source[8:8 + n_header])
at = 0


def take(form):
    global at
    values = struct.unpack_from("<" + form, data, at)
    at += struct.calcsize("<" + form)
    return values[0] if len(values) == 1 else values


def text():
    global at
    n = take("Q")
    at += n
    return data[at - n:at].decode()


def item(kind):
    if kind == 8:
        return text()
    if kind == 9:
        element, n = take("I"), take("Q")
        return [item(element) for _ in range(n)]
    return take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])


assert take("4s") == b"GGUF" and take("I") == 3
n_tensors, n_pairs = take("Q"), take("Q")
pairs = {}
for _ in range(n_pairs):
    key = text()
    pairs[key] = item(take("I"))
assert pairs["general.architecture"] == "qwen3moe"
assert pairs["qwen3moe.expert_count"] == 64 and pairs["qwen3moe.expert_used_count"] == 8
tokens = pairs["tokenizer.ggml.tokens"]
assert len(set(tokens)) == 256 and tokens[65] == "A" and tokens[32] == "\u0120" and tokens[10] == "\u010a"
infos = {}
for _ in range(n_tensors):
    name = text()
    shape = [take("Q") for _ in range(take("I"))]
    infos[name] = shape, take("I"), take("Q")
begin = (at + 31) // 32 * 32


def theirs(name, first, n):
    shape, kind, offset = infos[name]
    assert offset % 32 == 0 and kind in (0, 1)
    width, code = ((4, "f"), (2, "e"))[kind]
    return struct.unpack_from(f"<{n}{code}", data, begin + offset + first * width)


def ours(name, first, n):
    low = 8 + n_header + header[name]["data_offsets"][0]
    return struct.unpack_from(f"<{n}e", source, low + 2 * first)


assert infos["token_embd.weight"][0] == [128, 256]
assert infos["blk.5.ffn_gate_exps.weight"][0] == [128, 32, 64]
assert infos["blk.0.ffn_gate_inp.weight"][:2] == ([128, 64], 0)
assert theirs("token_embd.weight", 65 * 128, 128) == ours("model.embed_tokens.weight", 65 * 128, 128)
fused = "model.layers.3.mlp.experts.gate_up_proj"
expert = 64 * 128
assert theirs("blk.3.ffn_gate_exps.weight", 7 * 32 * 128, 4096) == ours(fused, 7 * expert, 4096)
assert theirs("blk.3.ffn_up_exps.weight", 7 * 32 * 128, 4096) == ours(fused, 7 * expert + 4096, 4096)
assert theirs("output_norm.weight", 0, 128) == ours("model.norm.weight", 0, 128)
END
expect_ok python3 "$tmp/read.py" "$tmp/tiny.gguf" "$tinymoe/tinymoe.safetensors"
expect_error 1 'exists' convert "$tinymoe/tinymoe.safetensors" "$tmp/tiny.gguf"
head -c 1000 "$tinymoe/tinymoe.safetensors" >"$tmp/cut.safetensors"
expect_error 1 'cut.safetensors: the header is longer' convert \
	"$tmp/cut.safetensors" "$tmp/cut.gguf"
expect_absent "$tmp/cut.gguf"
