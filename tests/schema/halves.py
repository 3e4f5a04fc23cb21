# SPDX-License-Identifier: MIT
"""Compares the weights of routed_expert with Python's own idea of fp16 and bf16.

usage: halves.py FILE.db, made by `make_trace halves`: layer 1 holds all 65 536 patterns of fp16,
layer 2 those of bf16, in order of position and topk_rank.
"""
import math
import sqlite3
import struct
import sys


def fp16(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def bf16(bits):
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def main():
    db = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", uri=True)
    for layer_id, decode in ((1, fp16), (2, bf16)):
        rows = db.execute("SELECT weight FROM routed_expert WHERE layer_id = ?"
                          " ORDER BY position, topk_rank", (layer_id,)).fetchall()
        if len(rows) != 65536:
            sys.exit("layer %d has %d weights" % (layer_id, len(rows)))
        for bits, (got,) in enumerate(rows):
            want = decode(bits)
            if (got is None) != (not math.isfinite(want)) or (got is not None and got != want):
                sys.exit("layer %d, bits %04x: %r instead of %r" % (layer_id, bits, got, want))


main()
