"""The dormouse network in PyTorch, as fast as ordinary tensor operations make it (docs/model.py says what each line means).

Row vectors: a weight W [in,out] maps x to x W. Shapes: b rows, t bytes a row (a multiple of CHUNK), H heads of hd channels.
"""
import json
import math
import struct

import torch
import torch.nn.functional as F

CHUNK = 16  # times DECAY_FLOOR is -80: exp of any sum of decays in a chunk, and its inverse, are f32 numbers
EPS_UNIT, EPS_KDA, EPS_ENGRAM, DECAY_FLOOR = 1e-6, 1e-5, 1e-5, -5.0
KEY_BASIS, KEY_PRIME = 1469598103934665603, 1099511628211


# ---- files -------------------------------------------------------------------------------------------------------------------

def read_checkpoint(path):
    """The [model] keys of a checkpoint's config, and its weights by name."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    config = {}
    for line in header["__metadata__"]["config"].split("[model]")[1].split("\n[")[0].splitlines():
        if "=" in line:
            key, value = line.split("=", 1)
            config[key.strip()] = json.loads(value)
    weights = {}
    for name, entry in header.items():
        if name.startswith("model."):
            assert entry["dtype"] == "F32", name
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
            weights[name[len("model."):]] = flat.reshape(entry["shape"]).clone().requires_grad_()
    return config, weights


def ngram_slots(rows, c):
    """Byte values [b,t] to table rows [b,t,3]: FNV-1a over the last n bytes (int64 products wrap), inside its row."""
    t, slots = rows.shape[1], []
    for table, n in enumerate(c["engram_orders"]):
        key = torch.full_like(rows, KEY_BASIS)
        for back in range(min(n, t) - 1, -1, -1):
            key[:, back:] = (key[:, back:] ^ rows[:, :t - back]) * KEY_PRIME
        slots.append(table * c["engram_rows"] + (key & 0x7FFFFFFF & (c["engram_rows"] - 1)))
    return torch.stack(slots, -1)


# ---- mechanisms --------------------------------------------------------------------------------------------------------------

def rms_norm(x, gain, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + EPS_UNIT)


def unit_lower_inverse(lower):
    """(I + L)^-1 of strictly lower L [...,C,C]. Solved outside of the graph; the last line has its value and its derivative."""
    with torch.no_grad():
        eye = torch.eye(CHUNK, dtype=lower.dtype)
        a = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False, unitriangular=True)
    return a - a @ (lower - lower.detach()) @ a


# Left to eager: torch.compile would unroll the chunks, which takes minutes and leaves the same products.
uncompiled = torch.compiler.disable if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable") else lambda function: function


@uncompiled
def between_chunks(erase, write, into, keep):
    """The states [n,m,hd,hd] that the chunks begin with, and what each writes into its own, [n,m,C,hd]."""
    state = torch.zeros_like(into[0] @ write[0])
    states, news = [], []
    for erase_i, write_i, into_i, keep_i in zip(erase.unbind(), write.unbind(), into.unbind(), keep.unbind()):
        new = torch.baddbmm(write_i, erase_i, state, alpha=-1)
        states.append(state)
        news.append(new)
        state = torch.baddbmm(keep_i * state, into_i, new)
    return torch.stack(states), torch.stack(news)


def delta_rule(q, k, v, g, beta):
    """Gated delta rule in chunks. q, k, v, g [n,m,C,hd], beta [n,m,C,1]: n chunks of m heads, all f32. Returns [n,m,C,hd].

    Within a chunk the writes are solved at once (WY form); only the states [m,hd,hd] between the chunks follow one another.
    """
    total = g.cumsum(-2)
    grow, last = total.exp(), total[..., -1:, :].exp()
    k_in, k_out, q_in = k * grow, k * (-total).exp(), q * grow
    k_out_t = k_out.transpose(-1, -2)
    inverse = unit_lower_inverse((beta * (k_in @ k_out_t)).tril(-1))
    scores = (q_in @ k_out_t).tril()
    erase, write = inverse @ (beta * k_in), inverse @ (beta * v)
    states, news = between_chunks(erase, write, (k_out * last).transpose(-1, -2), last.transpose(-1, -2))
    return q_in @ states + scores @ news


def kda(p, c, z):
    a, (b, t, _), heads, hd = "loop.attention.", z.shape, c["n_heads"], c["head_dim"]

    def chunks(x):  # [b,t,H*w] -> [n,b*H,C,w], f32
        x = x.float().reshape(b, t // CHUNK, CHUNK, heads, -1)
        return x.permute(1, 0, 3, 2, 4).reshape(t // CHUNK, b * heads, CHUNK, -1)

    q, k, v = (chunks(F.silu(z @ p[a + name + ".weight"])) for name in "qkv")
    zeta = (z @ p[a + "decay_up.weight"]) @ p[a + "decay_down.weight"] + p[a + "decay_bias"]
    rate = p[a + "a_log"].clamp(-10, 20).exp().repeat_interleave(hd)
    g = DECAY_FLOOR * torch.sigmoid(rate * zeta)
    beta = torch.sigmoid(z @ p[a + "beta.weight"])
    with torch.autocast("cpu", enabled=False):
        o = delta_rule(unit(q) * hd ** -0.5, unit(k), v, chunks(g), chunks(beta))
        o = rms_norm(o, p[a + "norm.weight"], EPS_KDA)
        o = o.reshape(t // CHUNK, b, heads, CHUNK, hd).permute(1, 0, 3, 2, 4).reshape(b, t, heads * hd)
    gate = torch.sigmoid(z @ p[a + "gate.weight"])
    return (o * gate) @ p[a + "out.weight"]


def spectral(p, name, x):
    return (x @ (p[name + ".u"] * p[name + ".s"])) @ p[name + ".v"].T


def experts(p, c, z, weights):
    """weights [b,t,E]: what each expert's answer counts; applied between its two factors, where a position is shortest."""
    names = [f"loop.experts.{e}." for e in range(c["n_experts"])]
    up = z @ torch.cat([p[n + "up.u"] * p[n + "up.s"] for n in names], 1)
    down = []
    for n, x, weight in zip(names, up.chunk(len(names), -1), weights.split(1, -1)):
        hidden = F.silu(x @ p[n + "up.v"].T)
        down.append(weight * (hidden @ (p[n + "down.u"] * p[n + "down.s"])))
    return torch.cat(down, -1) @ torch.cat([p[n + "down.v"] for n in names], 1).T


def engram(c, key, value, u):
    """key: already normalised."""
    s = (key * u).sum(-1, keepdim=True) * torch.rsqrt(u.square().mean(-1, keepdim=True) + EPS_ENGRAM) / math.sqrt(c["d_model"])
    return torch.sigmoid(s.sign() * s.abs().clamp(min=1e-6).sqrt()) * value


# ---- the network -------------------------------------------------------------------------------------------------------------

def block(p, c, h, e, control_0, key, value):
    """One iteration: h [b,t,d], its embedding e [d], and what does not depend on the iteration."""
    u = h + e
    z = rms_norm(u, p["loop.norm.weight"], c["norm_eps"])
    control = (u @ p["loop.controller.weight"][:c["d_model"]] + control_0).float()
    w_attention, w_memory, w_ffn = torch.sigmoid(control[..., :3]).split(1, -1)
    blend = torch.softmax(control[..., 3:3 + c["n_experts"]], -1)
    memory = z @ p["loop.memory_dense.weight"]
    if c["use_engram"]:
        lam = w_memory.clamp(max=c["engram_lam_max"]) if c["engram_gate"] == "clip" else c["engram_lam_max"] * w_memory
        memory = lam * engram(c, key, value, u) + (1 - lam) * memory
    y = memory + experts(p, c, z, w_ffn * blend)
    if c["use_kda"]:
        y = y + w_attention * kda(p, c, z)
    h = u + p["loop.residual_scale"] * y
    return h, spectral(p, "loop.readout", h)


def cross_entropy(p, c, readout, target):
    """Mean nats per byte, f32 always."""
    with torch.autocast("cpu", enabled=False):
        logits = spectral(p, "head", rms_norm(readout.float(), p["norm.weight"], c["norm_eps"]))
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def losses(p, c, rows, slots, target, block=block):
    """rows, target [b,t] byte values, slots [b,t,3]. Returns rec (mean over the iterations) and fin, nats per byte."""
    h0 = h = F.embedding(rows, p["embedding.weight"])
    control_0 = h0 @ p["loop.controller.weight"][c["d_model"]:]
    key = value = None
    if c["use_engram"]:
        found = F.embedding(slots, p["loop.engram.table"]).flatten(2)
        key = rms_norm((found @ p["loop.engram.key.weight"]).float(), 1.0, EPS_ENGRAM)
        value = found @ p["loop.engram.value.weight"]
    readouts, rec = [], 0.0
    for e in p["loop.iteration_embedding"].unbind():
        h, readout = block(p, c, h, e, control_0, key, value)
        readouts.append(readout)
        rec = rec + cross_entropy(p, c, readout, target)
    return rec / len(readouts), cross_entropy(p, c, sum(readouts) / len(readouts), target)
