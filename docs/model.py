"""The dormouse network in plain numpy: what the C++ must compute, one equation a line (docs/map.md leads to the C++).

    python3 docs/model.py CHECKPOINT TEXT [OUT.npy]    logits [bytes,256] of one row from a zero state; prints bits per byte

Row vectors: a weight W [in,out] maps x to x W. Everything is float64 and nothing is assigned in place, so that an automatic
differentiation package which imitates numpy can stand in for `np` (tests/oracle does that).
"""
import json
import struct
import sys

import numpy as np

EPS_UNIT, EPS_KDA, EPS_ENGRAM, DECAY_FLOOR = 1e-6, 1e-5, 1e-5, -5.0
KEY_BASIS, KEY_PRIME = 1469598103934665603, 1099511628211


# ---- files -------------------------------------------------------------------------------------------------------------------

def read_safetensors(path):
    """All tensors of a safetensors file as float64 arrays, and its string metadata."""
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    types = {"F32": "<f4", "F64": "<f8", "U32": "<u4", "U8": "u1"}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin:8 + length + end], dtype=types[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"]).astype(np.float64)
    return tensors, metadata


def read_config(text):
    """The [model] keys of a config: numbers, booleans, strings, lists of numbers; sections are ignored."""
    config = {}
    for line in text.splitlines():
        if "=" in line and not line.lstrip().startswith("#"):
            key, value = (part.strip() for part in line.split("=", 1))
            config[key] = json.loads(value)
    return config


# ---- pieces ------------------------------------------------------------------------------------------------------------------

def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rms_norm(x, gain, eps):
    return gain * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def spectral(p, name, x):
    return ((x @ p[name + ".u"]) * p[name + ".s"]) @ p[name + ".v"].T


def ngram_keys(row, orders):
    """[t,3] integers: low 31 bits of FNV-1a over the last n bytes; the context never crosses the start of the row."""
    keys = []
    for position in range(len(row)):
        line = []
        for n in orders:
            h = KEY_BASIS
            for byte in row[max(0, position + 1 - n):position + 1]:
                h = ((h ^ byte) * KEY_PRIME) % 2**64
            line.append(h & 0x7FFFFFFF)
        keys.append(line)
    return keys


# ---- mechanisms (one row of t positions) ---------------------------------------------------------------------------------------

def kda(p, c, z):
    """Gated delta attention: decay, erase, write, read; state [hd,hd] per head, from zero."""
    a, heads, hd, t = "loop.attention.", c["n_heads"], c["head_dim"], z.shape[0]

    def split(x):
        return np.reshape(x, (t, heads, hd))

    def unit(x):
        return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + EPS_UNIT)

    q = unit(split(silu(z @ p[a + "q.weight"])))
    k = unit(split(silu(z @ p[a + "k.weight"])))
    v = split(silu(z @ p[a + "v.weight"]))
    zeta = split((z @ p[a + "decay_up.weight"]) @ p[a + "decay_down.weight"] + p[a + "decay_bias"])
    rate = np.exp(np.clip(p[a + "a_log"], -10, 20))[None, :, None]
    alpha = np.exp(DECAY_FLOOR * sigmoid(rate * zeta))
    beta = sigmoid(z @ p[a + "beta.weight"])
    state = np.zeros((heads, hd, hd))
    outputs = []
    for i in range(t):
        state = alpha[i][:, :, None] * state
        write = beta[i][:, None] * (v[i] - np.einsum("hkv,hk->hv", state, k[i]))
        state = state + k[i][:, :, None] * write[:, None, :]
        outputs.append(np.einsum("hkv,hk->hv", state, q[i]) / np.sqrt(hd))
    o = np.stack(outputs)
    o = o / np.sqrt(np.mean(o * o, axis=-1, keepdims=True) + EPS_KDA) * p[a + "norm.weight"]
    gate = split(sigmoid(z @ p[a + "gate.weight"]))
    return np.reshape(o * gate, (t, heads * hd)) @ p[a + "out.weight"]


def engram_rows(p, c, row):
    """Key and value projections of the table rows each position selects; they do not depend on the iteration."""
    rows = c["engram_rows"]
    slots = [[i * rows + (key & (rows - 1)) for i, key in enumerate(line)] for line in ngram_keys(row, c["engram_orders"])]
    e = np.reshape(p["loop.engram.table"][np.array(slots)], (len(row), -1))
    return e @ p["loop.engram.key.weight"], e @ p["loop.engram.value.weight"]


def engram(c, key, value, u):
    one = np.ones(())
    s = np.sum(rms_norm(key, one, EPS_ENGRAM) * rms_norm(u, one, EPS_ENGRAM), axis=-1, keepdims=True) / np.sqrt(c["d_model"])
    return sigmoid(np.sign(s) * np.sqrt(np.maximum(np.abs(s), 1e-6))) * value


def expert(p, e, z):
    return spectral(p, f"loop.experts.{e}.down", silu(spectral(p, f"loop.experts.{e}.up", z)))


def log_head(p, c, readout):
    logits = spectral(p, "head", rms_norm(readout, p["norm.weight"], c["norm_eps"]))
    top = np.max(logits, axis=-1, keepdims=True)
    return logits, logits - top - np.log(np.sum(np.exp(logits - top), axis=-1, keepdims=True))


# ---- the network -----------------------------------------------------------------------------------------------------------------

def forward(p, c, row, depth=None):
    """row: list of t byte values. Returns the final logits [t,256] and log-probabilities: one [t,256] per iteration, then the final."""
    depth = depth or c["max_iter"]
    experts = c["n_experts"]
    h0 = p["embedding.weight"][np.array(row)]
    if c["use_engram"]:
        key, value = engram_rows(p, c, row)
    h, readouts, log_probs = h0, [], []
    for n in range(depth):
        u = h + p["loop.iteration_embedding"][n]
        z = rms_norm(u, p["loop.norm.weight"], c["norm_eps"])
        control = np.concatenate([u, h0], axis=-1) @ p["loop.controller.weight"]
        w_attention, w_ffn = sigmoid(control[:, 0:1]), sigmoid(control[:, 2:3])
        lam = sigmoid(control[:, 1:2])
        lam = np.minimum(lam, c["engram_lam_max"]) if c["engram_gate"] == "clip" else c["engram_lam_max"] * lam
        blend = softmax(control[:, 3:3 + experts])
        attention = kda(p, c, z) if c["use_kda"] else 0.0
        dense = z @ p["loop.memory_dense.weight"]
        memory = lam * engram(c, key, value, u) + (1 - lam) * dense if c["use_engram"] else dense
        ffn = w_ffn * sum(blend[:, e:e + 1] * expert(p, e, z) for e in range(experts))
        h = u + p["loop.residual_scale"] * (w_attention * attention + memory + ffn)
        readouts.append(spectral(p, "loop.readout", h))
        log_probs.append(log_head(p, c, readouts[-1])[1])
    logits, final = log_head(p, c, sum(readouts) / depth)
    return logits, log_probs + [final]


def loss(p, c, rows, targets):
    """Training loss: mean over iterations of the in-loop cross-entropy plus fin_weight times the final readout's, nats per byte."""
    total = 0.0
    for row, target in zip(rows, targets):
        _, log_probs = forward(p, c, row)
        nats = [-np.mean(lp[np.arange(len(row)), np.array(target)]) for lp in log_probs]
        total = total + sum(nats[:-1]) / len(nats[:-1]) + c["fin_weight"] * nats[-1]
    return total / len(rows)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    tensors, metadata = read_safetensors(sys.argv[1])
    config = read_config(metadata["config"])
    params = {name.removeprefix("model."): w for name, w in tensors.items() if not name.startswith("optimizer.")}
    text = list(open(sys.argv[2], "rb").read())
    logits, log_probs = forward(params, config, text)
    if len(sys.argv) == 4:
        np.save(sys.argv[3], logits.astype(np.float32))
    bits = -np.mean(log_probs[-1][np.arange(len(text) - 1), np.array(text[1:])]) / np.log(2)
    print(f"{bits:.4f} bits per byte over {len(text) - 1} bytes")


if __name__ == "__main__":
    main()
