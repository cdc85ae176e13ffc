#!/usr/bin/env python3
"""Writes the bad files of tests/bad: make.py FOLDER. Each is a small export with one thing wrong, both checksums right unless they are
what is wrong, or a file of another kind. messages.txt beside this script says what the program answers to each. Written from
docs/formats/dmexp.md; the good files it starts from are read by the program too, so this is a third writer of the format."""
import json
import os
import random
import struct
import sys
import zlib

CONFIG = """equations = 1
d_model = 4
n_heads = 1
head_dim = 2
d_ffn = 4
rank = 2
n_experts = 1
expert_init = "unit"
max_iter = 1
max_seq_len = 16
norm_eps = 0.001
use_kda = false
kda_decay_init = "spread"
use_engram = false
engram_rows = 1
engram_orders = [2, 3, 4]
engram_dim = 1
engram_lam_max = 0.5
engram_gate = "clip"
fin_weight = 1.0
"""
SPECTRAL = lambda name, i, o: [(name + ".u", [i, 2]), (name + ".s", [2]), (name + ".v", [o, 2])]
TENSORS = [("embedding.weight", [256, 4]), ("loop.controller.weight", [8, 4]), ("loop.iteration_embedding", [1, 4]),
           ("loop.norm.weight", [4]), ("loop.residual_scale", [1]), ("loop.memory_dense.weight", [4, 4]),
           *SPECTRAL("loop.experts.0.up", 4, 4), *SPECTRAL("loop.experts.0.down", 4, 4), *SPECTRAL("loop.readout", 4, 4),
           ("norm.weight", [4]), *SPECTRAL("head", 4, 256)]
FACTORS = (".u", ".v")


def count(dims):
    n = 1
    for d in dims:
        n *= d
    return n


def pad64(raw):
    return raw + bytes(-len(raw) % 64)


def payload_of(dtype):
    """-> payload, [(extra header lines)] per tensor; values are multiples of 1/8 that every dtype holds."""
    rng = random.Random(7)
    out, lines = b"", []
    for name, dims in TENSORS:
        n = count(dims)
        values = [rng.randrange(-8, 9) / 8 for _ in range(n)]
        if dtype == "f32":
            out += struct.pack(f"<{n}f", *values)
            lines.append("")
        elif dtype == "f16":
            out += struct.pack(f"<{n}e", *values)
            lines.append("")
        elif dtype == "bf16":
            out += b"".join(struct.pack("<f", v)[2:] for v in values)
            lines.append("")
        elif len(dims) == 2 and dtype == "ternary" and name.endswith(FACTORS):
            rows, columns = dims
            words = [sum((rng.choice((0, 1, 3)) << 2 * j) for j in range(columns)) for _ in range(rows)]
            by_row = name.endswith(".v")
            scales = [0.25] * (rows if by_row else columns)
            out += pad64(struct.pack(f"<{rows}I", *words)) + pad64(struct.pack(f"<{len(scales)}f", *scales))
            lines.append(f'dtype = "ternary"\nscales = "{"rows" if by_row else "columns"}"\n')
        elif len(dims) == 2 and dtype == "int8":
            scales = [0.125] * dims[0]
            out += pad64(bytes(rng.randrange(-127, 128) & 255 for _ in range(n))) + pad64(struct.pack(f"<{len(scales)}f", *scales))
            lines.append('dtype = "int8"\nscales = "rows"\n')
        else:
            out += pad64(struct.pack(f"<{n}f", *values))
            lines.append('dtype = "f32"\n')
    return out, lines


def header_of(dtype, lines, config=CONFIG):
    version = 2 if dtype in ("int8", "ternary") else 1
    text = f"""format = {version}
dtype = "{dtype}"
source = "checkpoint.safetensors@step3"
step = 3
num_params = {sum(count(d) for _, d in TENSORS)}
num_tensors = {len(TENSORS)}
flushed = 0
max_abs = 1.0
min_nonzero_abs = 0.125
config = {json.dumps(config)}
"""
    for (name, dims), extra in zip(TENSORS, lines):
        text += f'\n[[tensors]]\nname = "{name}"\ndims = [{", ".join(map(str, dims))}]\n{extra}overflowed = 0\n'
    return text


def sealed(text):
    raw = text.encode("utf-8") if isinstance(text, str) else text
    raw += b"\n" * (-(24 + len(raw) + 16) % 64)
    return raw + b"#crc32:%08x\n" % zlib.crc32(raw)


def export(header, payload, version=1, magic=b"DMEXPRT", h=None, p=None, crc=None):
    head = magic + bytes([version])
    head += struct.pack("<I", len(header) if h is None else h) + struct.pack("<Q", len(payload) if p is None else p)
    return head + struct.pack("<I", zlib.crc32(payload) if crc is None else crc) + header + payload


def swap(text, a, b, times=1):
    assert a in text, a
    return text.replace(a, b, times)


def files():
    """-> [(name, bytes)]"""
    bf16, none = payload_of("bf16")
    text = header_of("bf16", none)
    good = export(sealed(text), bf16)
    yield "good-f32.dmexp", export(sealed(header_of("f32", none)), payload_of("f32")[0])
    yield "good-f16.dmexp", export(sealed(header_of("f16", none)), payload_of("f16")[0])
    yield "good-bf16.dmexp", good
    versions2 = {}
    for dtype in ("int8", "ternary"):
        payload, lines = payload_of(dtype)
        versions2[dtype] = (header_of(dtype, lines), payload)
        yield f"good-{dtype}.dmexp", export(sealed(versions2[dtype][0]), payload, 2)
    yield "good-foreign.dmexp", export(text.encode(), bf16)

    def header(name, a, b):
        return f"{name}.dmexp", export(sealed(swap(text, a, b)), bf16)

    def config(name, a, b):
        return f"{name}.dmexp", export(sealed(header_of("bf16", none, swap(CONFIG, a, b))), bf16)

    # The fixed head.
    yield "cut-7.dmexp", good[:7]
    yield "cut-20.dmexp", good[:20]
    yield "cut-header.dmexp", good[:500]
    yield "cut-payload.dmexp", good[:-1]
    yield "longer.dmexp", good + b"\0"
    yield "version-0.dmexp", export(sealed(text), bf16, version=0)
    yield "version-9.dmexp", export(sealed(text), bf16, version=9)
    yield "header-4g.dmexp", export(sealed(text), bf16, h=0xffffffff)
    yield "header-2g.dmexp", export(sealed(text), bf16, h=0x80000000)
    yield "header-0.dmexp", export(b"", bf16)
    yield "payload-2g.dmexp", export(sealed(text), bf16, p=1 << 31)
    yield "payload-4g.dmexp", export(sealed(text), bf16, p=1 << 32)
    yield "payload-8e.dmexp", export(sealed(text), bf16, p=1 << 63)
    yield "payload-wraps.dmexp", export(sealed(text), bf16, p=(1 << 64) - 24)
    yield "payload-crc.dmexp", export(sealed(text), bf16, crc=1)
    yield "payload-bit.dmexp", good[:-5] + bytes([good[-5] ^ 16]) + good[-4:]
    yield "header-crc.dmexp", swap(good, b"step = 3", b"step = 4")
    yield "header-comment.dmexp", export(sealed(text)[:-16] + b"#crc33:00000000\n", bf16)

    # The header.
    yield "latin1.dmexp", export(sealed(swap(text, "checkpoint.", "ch\udce9ckpoint.").encode("utf-8", "surrogateescape")), bf16)
    yield "zero-byte.dmexp", export(sealed(swap(text, "step = 3", "step = 3\0")), bf16)
    yield "not-toml.dmexp", export(sealed("this is no TOML\n"), bf16)
    yield "json.dmexp", export(sealed(json.dumps({"format": 1}) + "\n"), bf16)
    yield "empty-header.dmexp", export(sealed("\n"), bf16)
    yield header("format-2", "format = 1", "format = 2")
    yield header("format-gone", "format = 1\n", "")
    yield header("format-text", "format = 1", 'format = "1"')
    yield header("twice", "step = 3", "step = 3\nstep = 3")
    yield header("unknown-key", "flushed = 0", 'flushed = 0\nlicense = "none"')
    yield header("dtype-f8", 'dtype = "bf16"', 'dtype = "f8"')
    yield header("dtype-int8-in-1", 'dtype = "bf16"', 'dtype = "int8"')
    yield header("dtype-other", 'dtype = "bf16"', 'dtype = "f32"')
    yield header("step-negative", "step = 3", "step = -3")
    yield header("step-date", "step = 3", "step = 2020-01-01")
    yield header("params-fewer", "num_params = ", "num_params = 1")
    yield header("params-negative", "num_params = ", "num_params = -")
    yield header("tensors-more", "num_tensors = ", "num_tensors = 4")
    yield header("max-nan", "max_abs = 1.0", "max_abs = nan")
    yield header("max-negative", "max_abs = 1.0", "max_abs = -1.0")
    yield header("overflowed", "overflowed = 0", "overflowed = 1")
    yield header("overflowed-gone", "overflowed = 0\n", "")
    yield header("name-twice", '"loop.readout.u"', '"loop.experts.0.down.u"')
    yield header("name-number", '"loop.readout.u"', "5")
    yield header("name-escape", '"loop.readout.u"', '"\\u001b[2J"')
    yield header("name-other", '"loop.readout.u"', '"loop.readout.w"')
    yield header("name-gone", 'name = "loop.readout.u"\n', "")
    yield header("dims-2g", "dims = [4, 2]", "dims = [2147483648, 2]")
    yield header("dims-8e", "dims = [4, 2]", "dims = [9223372036854775807, 2]")
    yield header("dims-wrap", "dims = [4, 2]", "dims = [4294967296, 4294967296]")
    yield header("dims-0", "dims = [4, 2]", "dims = [0, 2]")
    yield header("dims-negative", "dims = [4, 2]", "dims = [-4, -2]")
    yield header("dims-none", "dims = [4, 2]", "dims = []")
    yield header("dims-five", "dims = [4, 2]", "dims = [4, 2, 1, 1, 1]")
    yield header("dims-text", "dims = [4, 2]", 'dims = "4, 2"')
    yield header("dims-turned", "dims = [4, 2]", "dims = [2, 4]")
    yield header("dims-list", "dims = [4, 2]", "dims = [[4], [2]]")
    yield header("nested", "step = 3", "step = " + "[" * 2000)
    yield header("dotted", "step = 3", ".".join("a" * 2000) + " = 1")
    yield header("tables", "step = 3", "step = 3\na = {b = {c = {d = {e = {f = 1}}}}}")
    yield header("crowded", "step = 3", "step = 3\na = [" + "1," * 6000 + "1]")
    yield header("tensors-table", "[[tensors]]", "[tensors]")
    order = swap(text, '"loop.experts.0.up.u"', '"loop.readout.?"')
    order = swap(swap(order, '"loop.readout.u"', '"loop.experts.0.up.u"'), '"loop.readout.?"', '"loop.readout.u"')
    yield "order.dmexp", export(sealed(order), bf16)

    # The config.
    yield config("config-width", "d_model = 4", "d_model = 8")
    yield config("config-depth", "max_iter = 1", "max_iter = 2")
    yield config("config-depth-huge", "max_iter = 1", "max_iter = 1000000")
    yield config("config-experts", "n_experts = 1", "n_experts = 2")
    yield config("config-attention", "use_kda = false", "use_kda = true")
    yield config("config-memory", "use_engram = false", "use_engram = true")
    yield config("config-rank", "rank = 2", "rank = 3")
    yield config("config-equations", "equations = 1", "equations = 2")
    yield config("config-gone", "rank = 2\n", "")
    yield config("config-unknown", "rank = 2", "rank = 2\ncolour = 3")
    yield config("config-heads", "n_heads = 1", "n_heads = 3")
    yield config("config-eps", "norm_eps = 0.001", "norm_eps = -1.0")
    yield config("config-section", "equations = 1", "[model]\nequations = 1")
    yield config("config-orders", "engram_orders = [2, 3, 4]", "engram_orders = [2, 3]")
    yield "config-huge.dmexp", export(sealed(header_of("bf16", none, swap(swap(CONFIG, "d_model = 4", "d_model = 65536"), "d_ffn = 4",
                                                                          "d_ffn = 1048576"))), bf16)

    # Values, codes, scales, padding.
    for name, word in (("nan", 0x7fc0), ("infinity", 0xff80)):
        yield f"value-{name}.dmexp", export(sealed(text), struct.pack("<H", word) + bf16[2:])
    int8_text, int8 = versions2["int8"]
    ternary_text, ternary = versions2["ternary"]
    yield "int8-code.dmexp", export(sealed(int8_text), b"\x80" + int8[1:], 2)
    yield "int8-scale-negative.dmexp", export(sealed(int8_text), int8[:1024] + struct.pack("<f", -1) + int8[1028:], 2)
    yield "int8-scale-subnormal.dmexp", export(sealed(int8_text), int8[:1024] + struct.pack("<f", 1e-40) + int8[1028:], 2)
    yield "int8-scale-zero.dmexp", export(sealed(int8_text), b"\x01" + int8[1:1024] + struct.pack("<f", 0) + int8[1028:], 2)
    yield "int8-padding.dmexp", export(sealed(int8_text), int8[:2090] + b"\1" + int8[2091:], 2)
    yield "int8-scales-gone.dmexp", export(sealed(swap(int8_text, 'scales = "rows"\n', "")), int8, 2)
    yield "int8-scales-both.dmexp", export(sealed(swap(int8_text, 'scales = "rows"', 'scales = "both"')), int8, 2)
    yield "int8-no-checksum.dmexp", export(int8_text.encode(), int8, 2)
    at = sum(len(pad64(bytes(4 * count(d)))) for _, d in TENSORS[:6])
    assert TENSORS[6][0] == "loop.experts.0.up.u"
    yield "ternary-code.dmexp", export(sealed(ternary_text), ternary[:at] + b"\2" + ternary[at + 1:], 2)
    yield "ternary-beyond.dmexp", export(sealed(ternary_text), ternary[:at + 1] + b"\1" + ternary[at + 2:], 2)

    # Other kinds of files.
    yield "empty.dmexp", b""
    yield "text.dmexp", b"Call me Ishmael. Some years ago, never mind how long precisely.\n"
    yield "gzip.dmexp", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00" + bytes(8)
    yield "zstd.dmexp", b"\x28\xb5\x2f\xfd\x04\x00" + bytes(20)
    yield "xz.dmexp", b"\xfd7zXZ\x00\x00\x04" + bytes(20)
    yield "bzip2.dmexp", b"BZh91AY&SY" + bytes(20)
    yield "zip.dmexp", b"PK\x03\x04" + bytes(40)
    yield "elf.dmexp", b"\x7fELF\x02\x01\x01" + bytes(40)
    yield "numpy.dmexp", b"\x93NUMPY\x01\x00" + bytes(40)
    yield "gguf.dmexp", b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(8)
    yield "ngram.dmexp", b"DMNGRAM\x01" + bytes(40)
    yield "rust.dmexp", b"DMCK\x00\x02\x00\x00" + bytes(40)
    yield "burnpack.dmexp", b"NRUB\x01\x00" + bytes(40)
    yield "noise.dmexp", bytes(random.Random(3).randrange(128, 256) for _ in range(64))

    def safetensors(metadata, tensors):
        head, data = {"__metadata__": metadata} if metadata else {}, b""
        for name, values in tensors:
            head[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), len(data) + 4 * len(values)]}
            data += struct.pack(f"<{len(values)}f", *values)
        raw = json.dumps(head).encode()
        raw += b" " * (-len(raw) % 8)
        return struct.pack("<Q", len(raw)) + raw + data

    model = "[model]\n" + CONFIG
    yield "checkpoint.dmexp", safetensors({"dormouse.kind": "checkpoint", "config": model}, [("model.x", [1.0])])
    yield "weights.dmexp", safetensors({"dormouse.kind": "weights", "config": model}, [("model.x", [1.0])])
    yield "interchange.dmexp", safetensors({"dormouse.kind": "model", "config": model}, [("x", [1.0])])
    yield "stranger.dmexp", safetensors(None, [("lm_head.weight", [1.0])])


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, data in files():
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)


if __name__ == "__main__":
    main()
