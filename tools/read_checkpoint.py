#!/usr/bin/env python3
"""Prints what a safetensors file holds: names, dtypes, shapes, metadata. Standard library only; shares no code with the C++.

usage: read_checkpoint.py FILE [--metadata] [--values N] [--check]
  --metadata   the metadata in full (values longer than a line are cut otherwise)
  --values N   the first N values of every tensor
  --check      compare every tensor and the header with the CRC-32s in the metadata; exit 1 when they differ or are not there
"""
import argparse
import json
import math
import struct
import sys
import zlib

# dtype -> (bytes, struct code; None: two bytes of bf16)
DTYPES = {
    "F64": (8, "d"), "I64": (8, "q"), "U64": (8, "Q"), "F32": (4, "f"), "I32": (4, "i"), "U32": (4, "I"),
    "BF16": (2, None), "F16": (2, "e"), "I16": (2, "h"), "U16": (2, "H"), "I8": (1, "b"), "U8": (1, "B"), "BOOL": (1, "?"),
}


def fail(path, why):
    sys.exit(f"{path!r}: {why}")


def unique(pairs):
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key stands there twice")
    return out


def read(path):
    """-> header bytes, metadata, [(name, dtype, shape, begin, end)] in the order of the data, data bytes."""
    try:
        with open(path, "rb") as file:
            blob = file.read()
    except OSError as error:
        fail(path, error.strerror)
    if len(blob) < 8:
        fail(path, f"too short for a safetensors file ({len(blob)} bytes)")
    (length,) = struct.unpack("<Q", blob[:8])
    if length > len(blob) - 8:
        fail(path, f"not a safetensors file, or cut short (header of {length} bytes, file of {len(blob)})")
    raw, data = blob[8:8 + length], blob[8 + length:]
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
        metadata = header.pop("__metadata__", {})
        tensors = [(name, e["dtype"], e["shape"], *e["data_offsets"]) for name, e in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        fail(path, f"not a safetensors header: {error}")
    tensors.sort(key=lambda t: (t[3], t[4]))
    at = 0
    for name, dtype, shape, begin, end in tensors:
        if dtype not in DTYPES:
            fail(path, f"tensor {name!r} has the unknown dtype {dtype!r}")
        if begin != at or end - begin != DTYPES[dtype][0] * math.prod(shape):
            fail(path, f"tensor {name!r} lies at [{begin}, {end}), expected to begin at {at} with shape {shape}")
        at = end
    if at != len(data):
        fail(path, f"{len(data)} bytes of data, the header describes {at}")
    return raw, metadata, tensors, data


def values(dtype, data, count):
    width, code = DTYPES[dtype]
    count = min(count, len(data) // width)
    if code is None:
        words = struct.unpack(f"<{count}H", data[:2 * count])
        return [struct.unpack("<f", struct.pack("<I", w << 16))[0] for w in words]
    return list(struct.unpack(f"<{count}{code}", data[:width * count]))


def check(raw, metadata, tensors, data):
    """-> list of what differs; None when the file has no checksums."""
    if "crc32" not in metadata or "crc32_header" not in metadata:
        return None
    wrong = []
    key = b'"crc32_header":"'
    at = raw.find(key) + len(key)
    if f"{zlib.crc32(raw[:at] + b'00000000' + raw[at + 8:]):08x}" != metadata["crc32_header"]:
        wrong.append("header")
    crcs = dict(item.rsplit("=", 1) for item in metadata["crc32"].split(";") if item)
    for name, _, _, begin, end in tensors:
        if f"{zlib.crc32(data[begin:end]):08x}" != crcs.get(name):
            wrong.append(f"tensor {name}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--metadata", action="store_true", help="the metadata in full")
    parser.add_argument("--values", type=int, default=0, metavar="N", help="the first N values of every tensor")
    parser.add_argument("--check", action="store_true", help="verify the CRC-32s")
    args = parser.parse_args()
    raw, metadata, tensors, data = read(args.file)

    for key, value in metadata.items():
        if args.metadata and "\n" in value:
            print(f"{key}:\n  " + value.rstrip("\n").replace("\n", "\n  "))
        else:
            print(f"{key} = {value if args.metadata or len(value) <= 100 else value[:97] + '...'!r}")
    width = max((len(t[0]) for t in tensors), default=0)
    total = 0
    for name, dtype, shape, begin, end in tensors:
        total += math.prod(shape)
        line = f"{name:<{width}}  {dtype:<4}  {str(shape):<18}"
        if args.values:
            line += "  " + " ".join(f"{v:g}" for v in values(dtype, data[begin:end], args.values))
        print(line.rstrip())
    print(f"{len(tensors)} tensors, {total:,} values, {8 + len(raw) + len(data):,} bytes")
    if args.check:
        wrong = check(raw, metadata, tensors, data)
        if wrong is None:
            sys.exit("checksums: none in this file")
        print("checksums: " + ("all agree" if not wrong else "DIFFER: " + ", ".join(wrong)))
        if wrong:
            sys.exit(1)


if __name__ == "__main__":
    main()
