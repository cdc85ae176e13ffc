#!/usr/bin/env python3
"""Reads a .dmexp export: checks it, lists its tensors, compares its values. Standard library only; written from docs/formats/dmexp.md.

usage: read_dmexp.py FILE [--values N] [--config] [--compare X.safetensors]
  --values N   the first N values of every tensor
  --config     the model config
  --compare    every value, widened to f32, against the F32 tensor of the same name, bit for bit; exit 1 when one differs
"""
import argparse
import array
import json
import math
import re
import struct
import sys
import zlib

STORAGES = {1: ("f32", "f16", "bf16"), 2: ("f32", "f16", "bf16", "int8", "ternary")}
KEYS = ["format", "dtype", "source", "step", "num_params", "num_tensors", "flushed", "max_abs", "min_nonzero_abs", "config"]
OPTIONAL = ["bpb", "window"]
COMMENT = re.compile(rb"#crc32:([0-9a-f]{8})\n\Z")


class Bad(Exception):
    pass


def need(condition, why):
    if not condition:
        raise Bad(why)


def parse_header(text):
    """TOML -> (values, tables of [[tensors]]). Strings, numbers and lists as the writers of the format set them are JSON too."""
    try:
        import tomllib
        document = tomllib.loads(text)
        return document, document.pop("tensors", [])
    except ImportError:
        pass
    values, tensors = {}, []
    table = values
    for line in text.split("\n"):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line == "[[tensors]]":
            table = {}
            tensors.append(table)
            continue
        key, _, value = line.partition(" = ")
        need(key not in table, f"the key {key!r} twice")
        table[key] = json.loads(value)
    return values, tensors


def padded(n):
    return (n + 63) // 64 * 64


class Tensor:
    def __init__(self, table, version, dtype):
        self.name, self.dims = table.pop("name"), table.pop("dims")
        self.dtype = dtype if version == 1 else table.pop("dtype")
        need(self.dtype in STORAGES[version], f"{self.name}: dtype {self.dtype!r}")
        need(1 <= len(self.dims) <= 4 and all(isinstance(d, int) and d > 0 for d in self.dims), f"{self.name}: dims {self.dims}")
        self.size = math.prod(self.dims)
        self.scales = table.pop("scales") if self.dtype in ("int8", "ternary") else None
        need(table.pop("overflowed") == 0 and not table, f"{self.name}: other keys {list(table)}")
        scale_count = 0
        if self.scales:
            need(len(self.dims) == 2 and self.scales in ("rows", "columns"), f"{self.name}: scales {self.scales!r} of dims {self.dims}")
            scale_count = self.dims[0 if self.scales == "rows" else 1]
        self.scale_bytes = 4 * scale_count
        if self.dtype == "ternary":
            self.code_bytes = self.dims[0] * 4 * ((self.dims[1] + 15) // 16)
        else:
            self.code_bytes = self.size * {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}[self.dtype]

    def place(self, at, version):
        self.at = at
        self.scales_at = at + (self.code_bytes if version == 1 else padded(self.code_bytes))
        self.end = self.scales_at + (self.scale_bytes if version == 1 else padded(self.scale_bytes))
        return self.end

    def codes(self, payload):
        """int8 and ternary: the codes, row-major."""
        raw = payload[self.at:self.at + self.code_bytes]
        if self.dtype == "int8":
            codes = array.array("b", raw)
            need(-128 not in codes, f"{self.name}: code -128")
            return codes
        rows, columns = self.dims
        row_bytes = self.code_bytes // rows
        codes = array.array("b")
        for r in range(rows):
            word = int.from_bytes(raw[r * row_bytes:(r + 1) * row_bytes], "little")
            row = [word >> 2 * j & 3 for j in range(columns)]
            need(word >> 2 * columns == 0 and 2 not in row, f"{self.name}: bad codes in row {r}")
            codes.extend((0, 1, None, -1)[c] for c in row)
        return codes

    def values(self, payload):
        """-> array of f32."""
        raw = payload[self.at:self.at + self.code_bytes]
        if self.dtype == "f32":
            out = array.array("f", raw)
        elif self.dtype == "bf16":
            out = array.array("f", array.array("I", (w << 16 for w in array.array("H", raw))).tobytes())
        elif self.dtype == "f16":
            out = array.array("f", struct.unpack(f"<{self.size}e", raw))
        else:
            scales = array.array("f", payload[self.scales_at:self.scales_at + self.scale_bytes])
            need(all(s == 0 or 2.0 ** -126 <= s < math.inf for s in scales), f"{self.name}: a scale that is not allowed")
            columns = self.dims[1]
            by_row = self.scales == "rows"
            # A code times an f32 is exact in the doubles of Python; array rounds it to f32 once.
            out = array.array("f", (c * scales[i // columns if by_row else i % columns] for i, c in enumerate(self.codes(payload))))
        need(all(map(math.isfinite, out)), f"{self.name}: a value that is not finite")
        return out


def read(path):
    """-> values of the header, tensors, payload"""
    with open(path, "rb") as file:
        blob = file.read()
    need(len(blob) >= 24 and blob[:7] == b"DMEXPRT", "not a .dmexp export")
    version = blob[7]
    need(version in STORAGES, f"version {version}")
    header_length, payload_length, payload_crc = struct.unpack("<IQI", blob[8:24])
    need(header_length <= 16 << 20, "header above 16 MiB")
    need(24 + header_length + payload_length == len(blob), f"lengths 24 + {header_length} + {payload_length}, file {len(blob)}")
    header, payload = blob[24:24 + header_length], blob[24 + header_length:]
    need(zlib.crc32(payload) == payload_crc, "CRC of the payload")
    comment = COMMENT.search(header)
    if comment:
        need(int(comment[1], 16) == zlib.crc32(header[:-16]), "CRC of the header")
        need((24 + header_length) % 64 == 0, "24 + H is no multiple of 64")
    else:
        need(version == 1, "no CRC of the header")
        print(f"{path}: the header carries no checksum (written by another program)", file=sys.stderr)
    values, tables = parse_header(header.decode("utf-8"))
    need(all(k in values for k in KEYS), f"missing {[k for k in KEYS if k not in values]}")
    need(set(values) <= set(KEYS + OPTIONAL), f"unknown {sorted(set(values) - set(KEYS + OPTIONAL))}")
    need(values["format"] == version, "format differs from the version byte")
    need(values["dtype"] in (STORAGES[1] if version == 1 else ("int8", "ternary")), f"dtype {values['dtype']!r}")
    tensors, at = [], 0
    for table in tables:
        tensors.append(Tensor(table, version, values["dtype"]))
        t = tensors[-1]
        at = t.place(at, version)
        need(not any(payload[t.at + t.code_bytes:t.scales_at]) and not any(payload[t.scales_at + t.scale_bytes:t.end]),
             f"{t.name}: padding that is not zero")
    need(at == payload_length, f"tensors of {at} bytes, payload of {payload_length}")
    need(len(tensors) == values["num_tensors"] and len({t.name for t in tensors}) == len(tensors), "count or names of the tensors")
    need(sum(t.size for t in tensors) == values["num_params"], "num_params")
    return values, tensors, payload


def read_safetensors(path):
    """-> {name: bytes of an F32 tensor}"""
    with open(path, "rb") as file:
        blob = file.read()
    (length,) = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + length])
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            need(entry["dtype"] == "F32", f"{path}: {name} is {entry['dtype']}")
            begin, end = entry["data_offsets"]
            out[name] = blob[8 + length + begin:8 + length + end]
    return out


def compare(tensors, payload, path):
    others = read_safetensors(path)
    need({t.name for t in tensors} == set(others), f"{path} holds other tensors")
    different = 0
    for t in tensors:
        mine = t.values(payload).tobytes()
        if mine != others[t.name]:
            different += 1
            print(f"{t.name} DIFFERS")
    print(f"{len(tensors)} tensors compared, {different} differ")
    return different == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--values", type=int, default=0, metavar="N", help="the first N values of every tensor")
    parser.add_argument("--config", action="store_true", help="the model config")
    parser.add_argument("--compare", metavar="X.safetensors", help="compare with F32 tensors, bit for bit")
    args = parser.parse_args()
    if sys.byteorder != "little":
        sys.exit("this reader runs on little-endian machines only")
    try:
        values, tensors, payload = read(args.file)
        for key in KEYS[:-1] + OPTIONAL:
            if key in values:
                print(f"{key} = {values[key]!r}")
        for t in tensors:
            line = f"{t.name:<40} {t.dtype:<8} {str(t.dims):<16} {t.scales or ''}"
            if args.values:
                line += "  " + " ".join(f"{v:g}" for v in t.values(payload)[:args.values])
            print(line.rstrip())
        if args.config:
            print(values["config"], end="")
        if args.compare and not compare(tensors, payload, args.compare):
            sys.exit(1)
    except (Bad, OSError, UnicodeDecodeError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"{args.file!r}: {error}")


if __name__ == "__main__":
    main()
