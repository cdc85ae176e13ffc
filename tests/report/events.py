#!/usr/bin/env python3
"""The event records of tests/report/events_test.cpp, stated a second time from the format's description.

python3 events.py check FILE: FILE is what is stated here, and every record's framing holds.   python3 events.py write FILE."""
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(payload):
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked(length)) + payload + struct.pack("<I", masked(payload))


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n % 128 + 128)
        n //= 128
    out.append(n)
    return bytes(out)


def text(field, data):
    return bytes([field * 8 + 2]) + varint(len(data)) + data


def event(wall_time, step, rest):
    return b"\x09" + struct.pack("<d", wall_time) + (b"\x10" + varint(step) if step else b"") + rest


def scalars(values):
    return text(5, b"".join(text(1, text(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in values))


# RFC 3720, B.4, and the check value of the polynomial.
for data, crc in ((b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E),
                  (bytes(range(31, -1, -1)), 0x113FDB5C), (b"", 0)):
    assert crc32c(data) == crc, data

events = [
    event(1700000000.25, 0, text(3, b"brain.Event:2")),
    event(1700000001.5, 1, scalars([("step/ce", 5.608056), ("step/skipped", 0.0)])),
    event(1700000002.5, 301, text(7, b"\x08\x01")),
    event(1700000003.5, 2**40, scalars([("eval/bpb", -1.5), ("eval/" + "n" * 200, float("inf"))])),
]
expected = b"".join(record(e) for e in events)

if sys.argv[1] == "write":
    open(sys.argv[2], "wb").write(expected)
    sys.exit()
found = open(sys.argv[2], "rb").read()
at = 0
while at < len(found):
    (length,) = struct.unpack_from("<Q", found, at)
    assert struct.unpack_from("<I", found, at + 8)[0] == masked(found[at:at + 8]), f"length at {at}"
    payload = found[at + 12:at + 12 + length]
    assert struct.unpack_from("<I", found, at + 12 + length)[0] == masked(payload), f"payload at {at}"
    at += 16 + length
assert at == len(found) and found == expected, "the fixture is not what this file states"
