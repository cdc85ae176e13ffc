"""Writes the golden fixtures of the network tests from docs/model.py and the formulas of the optimizer, in float64.

    python3 -m venv venv && venv/bin/pip install numpy autograd && venv/bin/python tests/oracle/make_fixtures.py

Nothing here calls or was written from the C++. Outputs, committed: tests/network/fixtures/{forward,steps,steps_dense}.safetensors:
  forward: parameters, bytes of two rows, logits, per-iteration nats, loss, gradient of every parameter
  steps:   ten optimizer steps of mix (steps_dense: of mix-dense) at lr 1e-2: bytes per step, losses, every parameter before and after
"""
import json
import os
import struct
import sys

import autograd.numpy as anp
import numpy as np
from autograd import grad

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "docs"))
import model  # noqa: E402

model.np = anp

CONFIG = dict(equations=1, d_model=24, n_heads=2, head_dim=10, d_ffn=40, rank=6, n_experts=2, max_iter=3, max_seq_len=20, norm_eps=1e-3,
              use_kda=True, kda_decay_init="spread", use_engram=True, engram_rows=64, engram_orders=[2, 3, 4], engram_dim=4,
              engram_lam_max=0.5, engram_gate="clip", fin_weight=1.0)
ROWS, TIME = 2, 20
LR, WD, CLIP, STEPS = 1e-2, 0.05, 1.0, 10


def write_safetensors(path, tensors, metadata):
    header, blobs, offset = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        kind = {"float32": "F32", "float64": "F64", "uint8": "U8"}[str(value.dtype)]
        blob = np.ascontiguousarray(value).tobytes()
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def config_toml():
    return "[model]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in CONFIG.items())


def make_parameters(rng):
    c = CONFIG
    d, width, hd, r = c["d_model"], c["n_heads"] * c["head_dim"], c["head_dim"], c["rank"]
    p = {"embedding.weight": rng.normal(size=(256, d)), "loop.controller.weight": rng.normal(size=(2 * d, 8)) * 0.2,
         "loop.iteration_embedding": rng.normal(size=(c["max_iter"], d)) * 0.1, "loop.norm.weight": 1 + 0.1 * rng.normal(size=d),
         "loop.residual_scale": np.array([0.9]), "loop.memory_dense.weight": rng.normal(size=(d, d)) * 0.2}
    a = "loop.attention."
    for name, shape in {"q.weight": (d, width), "k.weight": (d, width), "v.weight": (d, width), "decay_up.weight": (d, hd),
                        "decay_down.weight": (hd, width), "beta.weight": (d, c["n_heads"]), "gate.weight": (d, width),
                        "out.weight": (width, d)}.items():
        p[a + name] = rng.normal(size=shape) * 0.3
    p[a + "decay_bias"] = rng.normal(size=width) - 1.5
    p[a + "a_log"] = rng.normal(size=c["n_heads"]) * 0.2
    p[a + "norm.weight"] = 1 + 0.1 * rng.normal(size=hd)

    def factor(n, k):
        return np.linalg.qr(rng.normal(size=(n, k)))[0]

    def spectral(name, n_in, n_out):
        k = min(r, n_in, n_out)
        p.update({name + ".u": factor(n_in, k), name + ".s": 1 + 0.2 * rng.normal(size=k), name + ".v": factor(n_out, k)})

    for e in range(c["n_experts"]):
        spectral(f"loop.experts.{e}.up", d, c["d_ffn"])
        spectral(f"loop.experts.{e}.down", c["d_ffn"], d)
    p["loop.engram.table"] = rng.normal(size=(3 * c["engram_rows"], c["engram_dim"]))
    p["loop.engram.key.weight"] = rng.normal(size=(3 * c["engram_dim"], d)) * 0.3
    p["loop.engram.value.weight"] = rng.normal(size=(3 * c["engram_dim"], d)) * 0.3
    spectral("loop.readout", d, d)
    p["norm.weight"] = 1 + 0.1 * rng.normal(size=d)
    spectral("head", d, 256)
    return {name: w.astype(np.float32).astype(np.float64) for name, w in p.items()}


# ---- the optimizer, from the formulas ------------------------------------------------------------------------------------------

def newton_schulz(x, steps=8):
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    x = x / max(np.linalg.norm(x), 1e-7)
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if flip else x


def column_row(x):
    x = x / np.maximum(np.linalg.norm(x, axis=0, keepdims=True), 1e-7)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-7)


def retract(x, iterations=3):
    flip = x.shape[0] > x.shape[1]
    x = x.T if flip else x
    gram = x @ x.T
    v = gram @ np.ones(len(gram))
    for _ in range(5):
        v = gram @ (v / max(np.linalg.norm(v), 1e-12))
    sigma = max(np.sqrt((v @ gram @ v) / max(v @ v, 1e-14)), 1e-7)
    x = x / (1.05 * sigma)
    for _ in range(iterations):
        gram = x @ x.T
        x = 15 / 8 * x + (-5 / 4 * gram + 3 / 8 * gram @ gram) @ x
    return x.T if flip else x


def is_factor(name):
    return name.endswith((".u", ".v"))


def group_of(name):
    if name == "loop.engram.table":
        return "table"
    if name in ("loop.attention.q.weight", "loop.attention.k.weight"):
        return "qk"
    if name == "loop.engram.key.weight" or (is_factor(name) and name.startswith(("loop.experts.", "loop.readout"))):
        return "muon"
    return "rest"


DENSE = {"loop.attention." + n + ".weight" for n in ("v", "decay_up", "decay_down", "gate", "out")} | {
    "loop.memory_dense.weight", "loop.engram.value.weight"}


def decays(name, w):
    return w.ndim == 2 and not is_factor(name) and name not in ("embedding.weight", "loop.engram.table", "loop.iteration_embedding")


def optimizer_step(p, g, state, t, touched, opt):
    group_in = {n: "dense" if opt == "mix-dense" and n in DENSE else group_of(n) for n in p}
    rest_norm = np.sqrt(sum(np.sum(g[n] ** 2) for n in p if group_in[n] == "rest"))
    scale = min(1.0, CLIP / rest_norm)
    for name, w in p.items():
        group, wd = group_in[name], WD if decays(name, w) else 0.0
        if group in ("muon", "qk", "dense"):
            lr = LR * (4 if group == "dense" else 1)
            m = state.setdefault(name, np.zeros_like(w))
            m[...] = 0.95 * m + 0.05 * g[name]
            fan_out = m if name.endswith(".v") else m.T
            heads = CONFIG["n_heads"] if group == "qk" else 1
            blocks = [column_row(newton_schulz(block)) for block in np.split(fan_out, heads, axis=0)]
            update = np.concatenate(blocks, axis=0)
            rows, cols = blocks[0].shape
            update = update if name.endswith(".v") else update.T
            w[...] = (1 - lr * wd) * w - lr * np.sqrt(max(1.0, rows / cols)) * update
        elif group == "table":
            m, v, count = state.setdefault(name, (np.zeros_like(w), np.zeros_like(w), np.zeros(len(w))))
            for row in touched:
                count[row] += 1
                m[row] = 0.9 * m[row] + 0.1 * g[name][row]
                v[row] = 0.95 * v[row] + 0.05 * g[name][row] ** 2
                w[row] -= 3 * LR * (m[row] / (1 - 0.9 ** count[row])) / (np.sqrt(v[row] / (1 - 0.95 ** count[row])) + 1e-8)
        else:
            m, v = state.setdefault(name, (np.zeros_like(w), np.zeros_like(w)))
            lr = LR * (2 if name == "embedding.weight" else 1)
            m[...] = 0.9 * m + 0.1 * scale * g[name]
            v[...] = 0.95 * v + 0.05 * (scale * g[name]) ** 2
            w[...] = (1 - lr * wd) * w - lr * (m / (1 - 0.9 ** t)) / (np.sqrt(v / (1 - 0.95 ** t)) + 1e-8)
    for name, w in p.items():
        if is_factor(name):
            w[...] = retract(w)


def batch(rng):
    text = b"the quick brown fox jumps over the lazy dog; \x00\xff\xc3\xa9 "
    data = np.frombuffer(text, dtype=np.uint8)
    rows = []
    for _ in range(ROWS):
        start = int(rng.integers(0, len(data) - TIME - 1))
        rows.append(data[start:start + TIME + 1])
    return np.stack(rows)


def touched_rows(data):
    rows = CONFIG["engram_rows"]
    found = set()
    for row in data:
        for line in model.ngram_keys([int(b) for b in row[:-1]], CONFIG["engram_orders"]):
            found.update(i * rows + (key & (rows - 1)) for i, key in enumerate(line))
    return sorted(found)


def split(data):
    return [[int(b) for b in row[:-1]] for row in data], [[int(b) for b in row[1:]] for row in data]


def main():
    out = os.path.join(HERE, "..", "network", "fixtures")
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(11)
    p = make_parameters(rng)
    loss_of = lambda q, data: model.loss(q, CONFIG, *split(data))  # noqa: E731
    gradient = grad(loss_of)

    data = batch(rng)
    tensors = {"model." + n: w.astype(np.float32) for n, w in p.items()}
    tensors["bytes"] = data
    logits, nats = [], []
    for row, target in zip(*split(data)):
        one, log_probs = model.forward(p, CONFIG, row)
        logits.append(one)
        nats.append([-lp[np.arange(TIME), np.array(target)] for lp in log_probs])
    tensors["logits"] = np.stack(logits)
    tensors["nats"] = np.stack(nats).swapaxes(0, 1).reshape(CONFIG["max_iter"] + 1, -1)
    tensors["loss"] = np.array([float(loss_of(p, data))])
    for name, value in gradient(p, data).items():
        tensors["grad." + name] = np.asarray(value)
    write_safetensors(os.path.join(out, "forward.safetensors"), tensors, {"config": config_toml()})

    for opt, name in (("mix", "steps"), ("mix-dense", "steps_dense")):
        q = {n: w.copy() for n, w in p.items()}
        tensors = {"before." + n: w.astype(np.float32) for n, w in q.items()}
        state, losses, batches = {}, [], []
        for t in range(1, STEPS + 1):
            data = batch(rng)
            batches.append(data)
            losses.append(float(loss_of(q, data)))
            optimizer_step(q, {n: np.asarray(v) for n, v in gradient(q, data).items()}, state, t, touched_rows(data), opt)
        tensors.update({"after." + n: w for n, w in q.items()})
        tensors["bytes"] = np.stack(batches)
        tensors["losses"] = np.array(losses)
        write_safetensors(os.path.join(out, name + ".safetensors"), tensors, {"config": config_toml(), "lr": str(LR), "opt": opt})
        print(opt, "losses", " ".join(f"{x:.4f}" for x in losses))


if __name__ == "__main__":
    main()
