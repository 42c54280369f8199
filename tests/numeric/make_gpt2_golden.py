#!/usr/bin/python3
"""Writes gpt2_golden.h: losses and gradient norms of a toy GPT-2 as PyTorch computes them.

Needs PyTorch and numpy (Debian: python3-torch). The model is written out here on plain tensors, in
double precision, from the same initial weights as the engine's (trainer/engine/random.c) on the same
data (tests/lib/toy.c), so that what is compared is the model, the gradients and the optimizer.

    tests/numeric/make_gpt2_golden.py > tests/numeric/gpt2_golden.h
"""
import math
import sys

import numpy as np
import torch

LAYERS, WIDTH, HEADS, VOCABULARY, COLUMNS = 2, 48, 3, 257, 32
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def normal(seed, tensor, count, std):
    """Elements of a tensor: SplitMix64 and Box-Muller, two elements per draw."""
    key = mix((seed + (tensor + 1) * GOLDEN) & MASK)
    out = []
    for pair in range((count + 1) // 2):
        bits = mix((key + (pair + 1) * GOLDEN) & MASK)
        u1 = ((bits >> 32) + 0.5) / 4294967296.0
        u2 = ((bits & 0xFFFFFFFF) + 0.5) / 4294967296.0
        radius = math.sqrt(-2 * math.log(u1))
        out += [std * radius * math.cos(2 * math.pi * u2), std * radius * math.sin(2 * math.pi * u2)]
    return np.array(out[:count], dtype=np.float32).astype(np.float64)


def parameters(seed):
    std, residual = 0.02, 0.02 / math.sqrt(2 * LAYERS)
    specs = [("wte", (VOCABULARY, WIDTH), std), ("wpe", (COLUMNS, WIDTH), std)]
    for layer in range(LAYERS):
        for name, shape, init in [
            ("ln_1.weight", (WIDTH,), 1), ("ln_1.bias", (WIDTH,), 0),
            ("c_attn.weight", (WIDTH, 3 * WIDTH), std), ("c_attn.bias", (3 * WIDTH,), 0),
            ("c_proj.weight", (WIDTH, WIDTH), residual), ("c_proj.bias", (WIDTH,), 0),
            ("ln_2.weight", (WIDTH,), 1), ("ln_2.bias", (WIDTH,), 0),
            ("c_fc.weight", (WIDTH, 4 * WIDTH), std), ("c_fc.bias", (4 * WIDTH,), 0),
            ("c_proj2.weight", (4 * WIDTH, WIDTH), residual), ("c_proj2.bias", (WIDTH,), 0),
        ]:
            specs.append((f"{layer}.{name}", shape, init))
    specs += [("ln_f.weight", (WIDTH,), 1), ("ln_f.bias", (WIDTH,), 0)]
    result = {}
    for tensor, (name, shape, init) in enumerate(specs):
        count = int(np.prod(shape))
        values = np.full(count, float(init)) if init in (0, 1) else normal(seed, tensor, count, init)
        result[name] = torch.tensor(values.reshape(shape), requires_grad=True)
    return result


def layer_norm(p, name, x):
    return torch.nn.functional.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"], 1e-5)


def linear(p, name, x):
    return x @ p[name + ".weight"] + p[name + ".bias"]


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def block(p, i, x):
    rows, columns, _ = x.shape
    qkv = linear(p, f"{i}.c_attn", layer_norm(p, f"{i}.ln_1", x))
    q, k, v = (t.view(rows, columns, HEADS, -1).transpose(1, 2) for t in qkv.split(WIDTH, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    hidden = torch.triu(torch.ones(columns, columns, dtype=torch.bool), diagonal=1)
    attended = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=3) @ v
    x = x + linear(p, f"{i}.c_proj", attended.transpose(1, 2).reshape(rows, columns, WIDTH))
    inner = gelu(linear(p, f"{i}.c_fc", layer_norm(p, f"{i}.ln_2", x)))
    return x + linear(p, f"{i}.c_proj2", inner)


def loss_sum(p, tokens, targets):
    x = p["wte"][tokens] + p["wpe"][: tokens.shape[1]]
    for i in range(LAYERS):
        x = block(p, i, x)
    logits = layer_norm(p, "ln_f", x) @ p["wte"].T
    return torch.nn.functional.cross_entropy(
        logits.view(-1, VOCABULARY), targets.reshape(-1), ignore_index=-100, reduction="sum")


def token_at(step, row, column):
    mixed = ((step * 64 + row + 1) * GOLDEN) & MASK
    return ((mixed >> 40) + (1 + (mixed >> 20) % 3) * column) % VOCABULARY


def batch(step, row, rows, ignore):
    grid = [[token_at(step, row + r, c) for c in range(COLUMNS + 1)] for r in range(rows)]
    all_tokens = torch.tensor(grid)
    tokens, targets = all_tokens[:, :-1], all_tokens[:, 1:].clone()
    if ignore:  # uneven on purpose: even rows of the batch lose more than half of their targets
        for r in range(0, rows, 2):
            targets[r, : 20] = -100
    return tokens, targets


def warmup_linear(k, warmup, high):
    return high * min(max(k - 2, 0) / warmup, 1.0)


def train(case):
    p = parameters(case["seed"])
    groups = [
        {"params": [t for t in p.values() if t.dim() > 1], "weight_decay": case["decay"]},
        {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    rows = []
    for step in range(10):
        micro = [batch(step, j * case["micro"], case["micro"], case["ignore"])
                 for j in range(case["accumulation"])]
        counted = sum(int((targets != -100).sum()) for _, targets in micro)
        optimizer.zero_grad()
        loss = sum(loss_sum(p, *m) for m in micro) / counted
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(list(p.values()), case["clip"])
        lr = case["lr"] if not case["warmup"] else warmup_linear(step + 1, case["warmup"], case["lr"])
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        rows.append((loss.item(), norm.item(), lr))
    return rows


CASES = [
    {"name": "plain", "seed": 1234, "micro": 4, "accumulation": 1, "ignore": False, "decay": 0.1,
     "clip": 1.0, "lr": 1e-3, "warmup": 0},
    {"name": "accumulated", "seed": 99, "micro": 3, "accumulation": 2, "ignore": True, "decay": 0.01,
     "clip": 0.5, "lr": 3e-3, "warmup": 4},
]


def main():
    print("/* gpt2_golden.h: made by make_gpt2_golden.py with PyTorch %s; do not edit. */"
          % torch.__version__.split("a")[0])
    print("typedef struct golden_step {\n    double loss, norm, lr;\n} golden_step;\n")
    first = parameters(CASES[0]["seed"])["wte"].detach().numpy().reshape(-1)[:5]
    print("/* The first weights of wte in the first case: both sides start alike. */")
    print("static const float golden_weights[] = {%s};" % ", ".join("%.9gf" % w for w in first))
    for case in CASES:
        print("\nstatic const golden_step golden_%s[] = {" % case["name"])
        for row in train(case):
            print("    {%.12g, %.12g, %.12g}," % row)
        print("};")


if __name__ == "__main__":
    sys.exit(main())
