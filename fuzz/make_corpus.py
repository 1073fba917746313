#!/usr/bin/env python3
"""Writes the seeds of safetensors_fuzzer into corpus/safetensors: whole small files and near misses."""
import json
import pathlib
import struct

FOLDER = pathlib.Path(__file__).parent / "corpus" / "safetensors"


def write(name, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    (FOLDER / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


FOLDER.mkdir(parents=True, exist_ok=True)
write("empty", {})
write("scalar", {"x": tensor("F32", [], 0, 4)}, b"\0\0\x80\x3f")
write("inputs", {"__metadata__": {"case": "tiny"}, "q": tensor("BF16", [1, 2], 0, 4),
                 "beta": tensor("F32", [1, 1], 4, 8), "cu_seqlens": tensor("I64", [2], 8, 24)},
      bytes(24))
write("no_elements", {"a": tensor("U8", [0, 9], 0, 0), "b": tensor("BOOL", [1], 0, 1)}, b"\1")
write("reordered", {"b": tensor("I16", [2], 2, 6), "a": tensor("U8", [2], 0, 2)}, bytes(6))
write("padded", b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}     ', b"\1")
write("overlap", {"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, bytes(3))
write("overflow", {"a": tensor("U8", [1 << 32, 1 << 32], 0, 0)})
write("twice", b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}')
write("deep", b'{"a":' + b"[" * 64)
