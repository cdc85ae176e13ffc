"""Times the training step of the same network in PyTorch: forward and backward, without an optimizer.

One JSON object a line on stdout: first the settings, then one for each measured repeat. With --serve a repeat is measured for each line
read from stdin, after one that is not. --check DATA prints instead the bits per byte of the first BATCH rows of a text, as
`dormouse eval --data DATA --bytes BATCH*LENGTH+1 --seq-len LENGTH` does.
"""
import argparse
import contextlib
import json
import math
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("peer.py: this Python has no PyTorch; install the package python3-torch (Debian, Ubuntu) or `pip install torch`")

import network


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="checkpoint.safetensors of a run")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq-len", type=int, help="bytes per row, a multiple of %d (default: max_seq_len)" % network.CHUNK)
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32", help="bf16: torch.autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the block that every iteration runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--check", metavar="DATA")
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    config, weights = network.read_checkpoint(args.checkpoint)
    length = args.seq_len or config["max_seq_len"]
    count = args.batch * length
    if length % network.CHUNK:
        sys.exit(f"peer.py: --seq-len {length} is not a multiple of {network.CHUNK}")
    if args.compile and not hasattr(torch, "compile"):
        sys.exit(f"peer.py: torch {torch.__version__} has no torch.compile (2.0 or later has)")
    block = torch.compile(network.block) if args.compile else network.block

    if args.check:
        with open(args.check, "rb") as file:
            text = torch.tensor(list(file.read(count + 1)))
        if len(text) != count + 1:
            sys.exit(f"peer.py: {args.check} has less than {count + 1} bytes")
    else:
        text = torch.randint(0, 256, (count + 1,), generator=torch.Generator().manual_seed(1))
    rows, target = text[:-1].view(args.batch, length), text[1:].view(args.batch, length)
    slots = network.ngram_slots(rows, config)

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext():
            return network.losses(weights, config, rows, slots, target, block)

    def milliseconds():
        for weight in weights.values():
            weight.grad = None
        begin = time.perf_counter()
        rec, fin = forward()
        (rec + config["fin_weight"] * fin).backward()
        return (time.perf_counter() - begin) * 1e3

    def say(**values):
        print(json.dumps(values), flush=True)

    if args.check:
        with torch.no_grad():
            rec, fin = forward()
        say(bpb=fin.item() / math.log(2), rec_bpb=rec.item() / math.log(2), scored=count)
        return
    first = milliseconds()
    say(torch=torch.__version__, dtype=args.dtype, compiled=args.compile, threads=args.threads, batch=args.batch, seq_len=length,
        chunk=network.CHUNK, cpu=torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else None,
        first_ms=round(first, 1))
    for _ in sys.stdin if args.serve else range(args.repeats):
        milliseconds()
        say(ms=round(milliseconds(), 2))


if __name__ == "__main__":
    main()
