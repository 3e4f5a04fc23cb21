#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Convert tinymoe, or another byte-level Qwen3-MoE of its form, from safetensors to GGUF.

    convert.py MODEL.safetensors OUTPUT.gguf [--outtype f32|f16]

Only Python's standard library is used. The layout of the file follows the GGUF specification,
version 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md); names of keys and tensors
are those that it lists, with the architecture "qwen3moe". The input keeps its configuration in
the metadata entry "config", fused gate and up projections ([experts][2 x intermediate][hidden],
gate first), and one token a byte. Matrices are written as outtype, vectors and the router as
f32.
"""
import argparse
import json
import os
import struct
import sys

ALIGNMENT = 32
GGUF_UINT32, GGUF_INT32, GGUF_FLOAT32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY = 4, 5, 6, 7, 8, 9
GGML_F32, GGML_F16 = 0, 1
NORMAL_TOKEN = 1


class Refused(Exception):
    """The input cannot be converted; the text says why."""


def read_safetensors(path):
    """Return the configuration and {name: (shape, values as a tuple of floats)}."""
    with open(path, "rb") as file:
        data = file.read()
    if len(data) < 8:
        raise Refused("shorter than a safetensors header")
    n_header = struct.unpack_from("<Q", data)[0]
    if n_header > len(data) - 8:
        raise Refused("the header is longer than the file")
    header = json.loads(data[8:8 + n_header])
    config = json.loads(header.pop("__metadata__", {}).get("config", "null"))
    if config is None:
        raise Refused("metadata has no entry 'config'")
    tensors = {}
    for name, entry in header.items():
        code, width = {"F16": ("e", 2), "F32": ("f", 4)}.get(entry["dtype"], (None, 0))
        if code is None:
            raise Refused(f"{name} is of type {entry['dtype']}, not F16 or F32")
        n_values = 1
        for size in entry["shape"]:
            n_values *= size
        begin, end = (8 + n_header + offset for offset in entry["data_offsets"])
        if end - begin != n_values * width or end > len(data):
            raise Refused(f"{name} does not have the bytes of its shape")
        tensors[name] = (entry["shape"], struct.unpack_from(f"<{n_values}{code}", data, begin))
    return config, tensors


def byte_tokens():
    """The text of each byte's token: the printable form that byte-level BPE gives it, in which
    bytes that are no visible Latin-1 letter are numbered from U+0100 on."""
    visible = set(range(0x21, 0x7f)) | set(range(0xa1, 0xad)) | set(range(0xae, 0x100))
    n_hidden = 0
    texts = []
    for byte in range(256):
        if byte in visible:
            texts.append(chr(byte))
        else:
            texts.append(chr(0x100 + n_hidden))
            n_hidden += 1
    return texts


def split_experts(shape, values, first_row, n_rows):
    """Rows [first_row, first_row + n_rows) of each expert's matrix."""
    n_experts, n_out, n_in = shape
    parts = []
    for expert in range(n_experts):
        begin = (expert * n_out + first_row) * n_in
        parts.extend(values[begin:begin + n_rows * n_in])
    return [n_experts, n_rows, n_in], parts


def model_tensors(config, tensors):
    """Yield (GGUF name, shape, values, whether it is a matrix of outtype)."""
    width = config["moe_intermediate_size"]

    def take(name):
        if name not in tensors:
            raise Refused(f"there is no tensor {name}")
        return tensors[name]

    yield ("token_embd.weight", *take("model.embed_tokens.weight"), True)
    for i in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{i}.", f"blk.{i}."
        for old, new, is_matrix in (
                ("input_layernorm.weight", "attn_norm.weight", False),
                ("self_attn.q_proj.weight", "attn_q.weight", True),
                ("self_attn.k_proj.weight", "attn_k.weight", True),
                ("self_attn.v_proj.weight", "attn_v.weight", True),
                ("self_attn.o_proj.weight", "attn_output.weight", True),
                ("self_attn.q_norm.weight", "attn_q_norm.weight", False),
                ("self_attn.k_norm.weight", "attn_k_norm.weight", False),
                ("post_attention_layernorm.weight", "ffn_norm.weight", False),
                ("mlp.gate.weight", "ffn_gate_inp.weight", False),
                ("mlp.experts.down_proj", "ffn_down_exps.weight", True)):
            yield (theirs + new, *take(ours + old), is_matrix)
        gate_up = take(ours + "mlp.experts.gate_up_proj")
        yield (theirs + "ffn_gate_exps.weight", *split_experts(*gate_up, 0, width), True)
        yield (theirs + "ffn_up_exps.weight", *split_experts(*gate_up, width, width), True)
    yield ("output_norm.weight", *take("model.norm.weight"), False)
    if not config.get("tie_word_embeddings"):
        yield ("output.weight", *take("lm_head.weight"), True)


def string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def value(kind, item):
    if kind == GGUF_STRING:
        return string(item)
    return struct.pack({GGUF_UINT32: "<I", GGUF_INT32: "<i", GGUF_FLOAT32: "<f",
                        GGUF_BOOL: "<?"}[kind], item)


def pair(key, kind, item, element=None):
    if kind != GGUF_ARRAY:
        return string(key) + struct.pack("<I", kind) + value(kind, item)
    return (string(key) + struct.pack("<IIQ", kind, element, len(item))
            + b"".join(value(element, each) for each in item))


def metadata(config, outtype):
    arch = "qwen3moe"
    return [
        pair("general.architecture", GGUF_STRING, arch),
        pair("general.name", GGUF_STRING, config.get("name", "tinymoe")),
        pair("general.alignment", GGUF_UINT32, ALIGNMENT),
        pair("general.file_type", GGUF_UINT32, outtype),
        pair(f"{arch}.vocab_size", GGUF_UINT32, config["vocab_size"]),
        pair(f"{arch}.context_length", GGUF_UINT32, config.get("max_position_embeddings", 4096)),
        pair(f"{arch}.embedding_length", GGUF_UINT32, config["hidden_size"]),
        pair(f"{arch}.block_count", GGUF_UINT32, config["num_hidden_layers"]),
        pair(f"{arch}.feed_forward_length", GGUF_UINT32, config["moe_intermediate_size"]),
        pair(f"{arch}.expert_feed_forward_length", GGUF_UINT32, config["moe_intermediate_size"]),
        pair(f"{arch}.expert_count", GGUF_UINT32, config["num_experts"]),
        pair(f"{arch}.expert_used_count", GGUF_UINT32, config["num_experts_per_tok"]),
        pair(f"{arch}.attention.head_count", GGUF_UINT32, config["num_attention_heads"]),
        pair(f"{arch}.attention.head_count_kv", GGUF_UINT32, config["num_key_value_heads"]),
        pair(f"{arch}.attention.key_length", GGUF_UINT32, config["head_dim"]),
        pair(f"{arch}.attention.value_length", GGUF_UINT32, config["head_dim"]),
        pair(f"{arch}.attention.layer_norm_rms_epsilon", GGUF_FLOAT32, config["rms_norm_eps"]),
        pair(f"{arch}.rope.freq_base", GGUF_FLOAT32, config["rope_theta"]),
        pair("tokenizer.ggml.model", GGUF_STRING, "gpt2"),
        pair("tokenizer.ggml.pre", GGUF_STRING, "gpt-2"),
        pair("tokenizer.ggml.tokens", GGUF_ARRAY, byte_tokens(), GGUF_STRING),
        pair("tokenizer.ggml.token_type", GGUF_ARRAY, [NORMAL_TOKEN] * 256, GGUF_INT32),
        pair("tokenizer.ggml.merges", GGUF_ARRAY, [], GGUF_STRING),
        pair("tokenizer.ggml.bos_token_id", GGUF_UINT32, 0),
        pair("tokenizer.ggml.eos_token_id", GGUF_UINT32, 0),
        pair("tokenizer.ggml.add_bos_token", GGUF_BOOL, False),
    ]


def write_gguf(path, pairs, tensors, outtype):
    """tensors: the list that model_tensors() yields. Dimensions are stored fastest first."""
    infos, blocks, offset = [], [], 0
    for name, shape, values, is_matrix in tensors:
        kind = outtype if is_matrix else GGML_F32
        block = struct.pack(f"<{len(values)}{'e' if kind == GGML_F16 else 'f'}", *values)
        infos.append(string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
                     + struct.pack("<IQ", kind, offset))
        block += bytes(-len(block) % ALIGNMENT)
        blocks.append(block)
        offset += len(block)
    head = (b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs)
            + b"".join(infos))
    with open(path, "xb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for block in blocks:
            file.write(block)


def main():
    parser = argparse.ArgumentParser(description="Convert a byte-level Qwen3-MoE to GGUF.")
    parser.add_argument("model")
    parser.add_argument("output")
    parser.add_argument("--outtype", choices=("f32", "f16"), default="f32")
    args = parser.parse_args()
    outtype = GGML_F16 if args.outtype == "f16" else GGML_F32
    try:
        config, tensors = read_safetensors(args.model)
        if config["vocab_size"] != 256:
            raise Refused("the vocabulary is not one token a byte")
        converted = list(model_tensors(config, tensors))
        write_gguf(args.output, metadata(config, outtype), converted, outtype)
    except (Refused, OSError, KeyError, ValueError) as error:
        if isinstance(error, KeyError):
            error = f"the configuration lacks {error}"
        print(f"convert.py: {args.model}: {error}", file=sys.stderr)
        return 1
    print(f"{args.output}: {len(converted)} tensors, {os.path.getsize(args.output)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
