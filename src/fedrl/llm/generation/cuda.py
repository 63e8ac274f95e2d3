"""Answers at a GPU's speed: the sampler's interface with a decoder of its own.

transformers' `generate` waits for kernel launches: its time per token is the same for 1 prompt and
for 500. Here one decode step, sampling included, is captured in a CUDA graph per bucket of (rows,
cache length) and replayed; the key-value cache has a fixed place; attention reads only what is
filled, and each key-value head once for its group of query heads. Prompts are padded on the right,
so reading them needs no mask beyond causality, and equal prompts are read once.

Works for causal models of the Llama kind (SmolLM2, Llama 3, Qwen2.5). The weights are a copy in
`dtype`: `push` after every change of the learner's. Without a GPU the same code runs uncaptured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from fedrl.core.types import UserError
from fedrl.llm.generation.hf import Answers, cut, padded
from fedrl.llm.generation.torch_ops import Ops, attend, choose, gate, norm, rotate
from fedrl.llm.weights import check_supported, merged, unwrapped

CHECK = 8
"""Tokens between two looks at whether all answers have ended: a look waits for the GPU."""
READ = 65_536
"""Prompt tokens per forward pass: enough to fill a GPU, and a bound on its scratch memory."""
ROUND = 128
"""Cache lengths are multiples of this, so that few graphs serve many prompts."""
WIDE = hasattr(torch.ops.aten.mm, "dtype")
"""Whether this PyTorch multiplies in half precision into single precision (2.8 and later)."""


class Layer(NamedTuple):
    before: Tensor  # weight of the norm before attention
    qkv: Tensor  # [(heads + 2 kv) · size, width]
    bias: Tensor | None  # Qwen2 has one on queries, keys and values
    out: Tensor
    after: Tensor  # weight of the norm before the MLP
    up: Tensor  # gate and up projections, one below the other
    down: Tensor


@dataclass(frozen=True)
class Desk:
    """What a captured step reads and writes, for one bucket: always at the same addresses.

    Rows of the cache are in the order of reading: different prompts first, by length. `token`,
    `logprob`, `over` and `noise` are in the caller's order; `row` and `source` lead from one to
    the other.
    """

    token: Tensor
    logprob: Tensor
    over: Tensor
    position: Tensor
    row: Tensor  # of the cache, for each of the caller's
    source: Tensor  # the inverse
    temperature: Tensor
    sampling: Tensor  # 1, or 0 for the most likely token
    noise: Tensor  # uniform, [rows, vocabulary]
    cache: list[tuple[Tensor, Tensor]]  # per layer: keys, values [rows, kv, length, size]

    @property
    def shape(self) -> tuple[int, int]:
        return self.cache[0][0].shape[0], self.cache[0][0].shape[2]


class Engine:
    """See the module's docstring.

    `fused` (default: on a GPU) takes the Triton kernels, `graphs` (likewise) captures; `memory` is
    the most bytes that the cache may take, by default what the GPU has free.
    """

    def __init__(
        self,
        model: nn.Module,
        end: Sequence[int],
        pad: int,
        dtype: torch.dtype | None = None,
        fused: bool | None = None,
        graphs: bool | None = None,
        memory: int | None = None,
    ) -> None:
        base = unwrapped(model)
        check_supported(base)
        self.device = next(base.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.dtype = dtype or (torch.bfloat16 if on_gpu else torch.float32)
        self.graphs = on_gpu if graphs is None else graphs
        self.fused = on_gpu if fused is None else fused
        self.ops = fused_ops() if self.fused else Ops(norm, gate, rotate, attend, choose)
        self.memory, self.pad = memory, pad
        self.end = torch.tensor(list(end), dtype=torch.long, device=self.device)
        self._take_shape(base)
        self.version = 0
        self.push(merged(model), 0)
        self._store = torch.empty(0, dtype=self.dtype, device=self.device)
        self._noise = torch.empty(0, device=self.device)
        self._desks: dict[tuple[int, int], Desk] = {}
        self._graphs: dict[tuple[int, int, int], Any] = {}
        self._pool: Any = None

    def _take_shape(self, base: Any) -> None:
        attention = base.model.layers[0].self_attn
        self.size, self.scale = attention.head_dim, attention.scaling
        self.heads = base.config.num_attention_heads
        self.kv = base.config.num_key_value_heads
        self.eps = base.config.rms_norm_eps
        rotary = base.model.rotary_emb
        self.frequencies = rotary.inv_freq.detach().float().to(self.device)
        self.turn_scale = float(rotary.attention_scaling)
        self.layers: list[Layer] = []
        self._targets: dict[str, Tensor] = {}
        self.embed = self._room_for("model.embed_tokens", base.model.embed_tokens)
        self.final = self._room_for("model.norm", base.model.norm)
        tied = base.lm_head.weight is base.model.embed_tokens.weight
        self.head = self.embed if tied else self._room_for("lm_head", base.lm_head)
        for i, layer in enumerate(base.model.layers):
            at = f"model.layers.{i}"
            names = [f"{at}.self_attn.{x}_proj" for x in "qkv"]
            parts = [getattr(layer.self_attn, f"{x}_proj") for x in "qkv"]
            ups = [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"]
            self.layers.append(
                Layer(
                    self._room_for(f"{at}.input_layernorm", layer.input_layernorm),
                    self._stacked(names, parts, "weight"),
                    None if parts[0].bias is None else self._stacked(names, parts, "bias"),
                    self._room_for(f"{at}.self_attn.o_proj", layer.self_attn.o_proj),
                    self._room_for(
                        f"{at}.post_attention_layernorm", layer.post_attention_layernorm
                    ),
                    self._stacked(ups, [layer.mlp.gate_proj, layer.mlp.up_proj], "weight"),
                    self._room_for(f"{at}.mlp.down_proj", layer.mlp.down_proj),
                )
            )

    def _room_for(self, name: str, module: nn.Module) -> Tensor:
        return self._stacked([name], [module], "weight")

    def _stacked(self, names: list[str], modules: list[Any], kind: str) -> Tensor:
        """Room for several weights in one tensor, and where `push` puts each."""
        parts = [getattr(module, kind) for module in modules]
        shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
        whole = torch.empty(shape, dtype=self.dtype, device=self.device)
        pieces = whole.split([len(part) for part in parts])
        self._targets |= {f"{n}.{kind}": piece for n, piece in zip(names, pieces, strict=True)}
        return whole

    @torch.no_grad()
    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        """Copy new weights (`merged(model)`), named as in the model's state_dict."""
        missing = self._targets.keys() - (weights or {}).keys()
        if weights is None or missing:
            first = min(missing)
            raise ValueError(f"push without {first}: this engine keeps a copy, give it all weights")
        for name, target in self._targets.items():
            target.copy_(weights[name])
        self.version = version

    @torch.no_grad()
    def answer(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Answers:
        """Sample up to `limit` tokens each; temperature 0 takes the most likely."""
        unique = sorted(dict.fromkeys(tuple(prompt) for prompt in prompts), key=len)
        number = {prompt: i for i, prompt in enumerate(unique)}
        which = [number[tuple(prompt)] for prompt in prompts]
        desk = self._desk(rows_bucket(len(prompts)), up(len(unique[-1]) + limit, ROUND))
        self._seat(desk, which, unique, temperature)
        hidden = self._read(unique, desk)
        self._repeat(desk, hidden, which, len(unique), len(unique[-1]))
        tokens = torch.empty(limit, len(desk.token), dtype=torch.long, device=self.device)
        logprobs = torch.empty(limit, len(desk.token), device=self.device)
        count, step, longest = len(prompts), 0, len(unique[-1])
        every = CHECK if self.graphs else 1
        for step in range(limit):
            if temperature:
                desk.noise[:count].uniform_(generator=generator)
            if step == 0:
                self._choose(hidden, desk)
            else:
                self._advance(desk, longest + step)
            tokens[step].copy_(desk.token)
            logprobs[step].copy_(desk.logprob)
            if step % every == every - 1 and bool(desk.over.all()):
                break
        said = tokens[: step + 1, :count].T.cpu(), logprobs[: step + 1, :count].T.cpu()
        return cut(*said, self.end.cpu())

    # Reading the prompts

    def _seat(
        self, desk: Desk, which: list[int], unique: list[tuple[int, ...]], temperature: float
    ) -> None:
        """Who sits where: row u of the cache is the first to have prompt u, others come behind."""
        first: dict[int, int] = {}
        row, behind = [], len(unique)
        for i, u in enumerate(which):
            if first.setdefault(u, i) == i:
                row.append(u)
            else:
                row.append(behind)
                behind += 1
        row += range(len(which), len(desk.row))
        position = [0] * len(row)
        for i, u in enumerate(which):
            position[row[i]] = len(unique[u])
        desk.row.copy_(torch.tensor(row))
        desk.source.copy_(torch.tensor(row).argsort())
        desk.position.copy_(torch.tensor(position))
        desk.over.copy_(torch.arange(len(row)) >= len(which))
        desk.temperature.fill_(temperature or 1.0)
        desk.sampling.fill_(float(temperature > 0))

    def _read(self, unique: list[tuple[int, ...]], desk: Desk) -> Tensor:
        """The state after each prompt, by rows of the cache, whose first rows it fills."""
        # All of it goes to the device first: a copy later would wait for the passes before it.
        parts = [(start, *padded(part, self.pad)) for start, part in passes(unique)]
        sent = [(start, ids.to(self.device), n.to(self.device)) for start, ids, _, n in parts]
        last = torch.zeros(len(desk.row), self.embed.shape[1], dtype=self.dtype, device=self.device)
        for start, ids, lengths in sent:
            rows, length = ids.shape
            positions = torch.arange(length, device=self.device).repeat(rows)
            cos, sin = self._turns(positions)
            x = embedding(ids.flatten(), self.embed)
            for layer, (keys, values) in zip(self.layers, desk.cache, strict=True):
                k, v = keys[start : start + rows], values[start : start + rows]
                q = self._project(x, layer, cos, sin, positions, k, v)
                mixed = scaled_dot_product_attention(
                    q.view(rows, length, self.heads, self.size).transpose(1, 2),
                    k[:, :, :length],
                    v[:, :, :length],
                    is_causal=True,
                    scale=self.scale,
                    enable_gqa=self.heads != self.kv,
                )
                self._finish(x, layer, mixed.transpose(1, 2).reshape(rows * length, -1))
            ends = torch.arange(rows, device=self.device) * length + lengths - 1
            last[start : start + rows] = x[ends]
        return last

    def _repeat(
        self, desk: Desk, hidden: Tensor, which: list[int], unique: int, length: int
    ) -> None:
        """Rows that have another's prompt take over what was read for it."""
        if unique == len(which):
            return
        behind = desk.source[unique : len(which)].tolist()
        again = torch.tensor([which[i] for i in behind], device=self.device)
        rows = slice(unique, len(which))
        hidden[rows] = hidden[again]
        for both in desk.cache:
            for tensor in both:
                tensor[rows, :, :length] = tensor[again, :, :length]

    # One token

    def _advance(self, desk: Desk, length: int) -> None:
        """The next token of every row; `length` is the longest row with this step's token."""
        # The kernels stop at each row's own length, plain attention at a multiple for all.
        filled = desk.shape[1] if self.fused else up(length, ROUND)
        if not self.graphs:
            self._step(desk, filled)
            return
        key = (*desk.shape, filled)
        if key not in self._graphs:
            self._graphs[key] = self._capture(desk, filled)
        self._graphs[key].replay()

    def _step(self, desk: Desk, filled: int) -> None:
        x = embedding(desk.token[desk.source], self.embed)
        cos, sin = self._turns(desk.position)
        # An ended row goes on to no purpose until all have ended: let it read as little as may be.
        lengths = desk.position * ~desk.over[desk.source] + 1
        for layer, (keys, values) in zip(self.layers, desk.cache, strict=True):
            q = self._project(x, layer, cos, sin, desk.position, keys, values)
            k, v = keys[:, :, :filled], values[:, :, :filled]
            self._finish(x, layer, self.ops.attend(q, k, v, lengths, self.scale))
        desk.position.add_(1)
        self._choose(x, desk)

    def _capture(self, desk: Desk, filled: int) -> Any:
        """A step as a graph. The step before it compiles; it is undone and told to nobody."""
        moved = (desk.token, desk.logprob, desk.over, desk.position)
        kept = [tensor.clone() for tensor in moved]
        aside, here = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step(desk, filled)
        here.wait_stream(aside)
        for tensor, value in zip(moved, kept, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(desk, filled)
        return graph

    def _project(
        self, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor, positions: Tensor, *kv: Tensor
    ) -> Tensor:
        """Queries; keys and values go to their place in the cache."""
        qkv = linear(self.ops.norm(x, layer.before, self.eps), layer.qkv, layer.bias)
        return self.ops.rotate(qkv, cos, sin, positions, *kv)

    def _finish(self, x: Tensor, layer: Layer, mixed: Tensor) -> None:
        """The rest of a layer, added to `x` in place."""
        x.addmm_(mixed, layer.out.T)
        inner = linear(self.ops.norm(x, layer.after, self.eps), layer.up)
        x.addmm_(self.ops.gate(inner), layer.down.T)

    def _choose(self, x: Tensor, desk: Desk) -> None:
        state = self.ops.norm(x[desk.row], self.final, self.eps)
        if state.is_cuda and WIDE and self.dtype != torch.float32:
            logits = torch.mm(state, self.head.T, out_dtype=torch.float32)
        else:
            logits = linear(state, self.head).float()
        token, logprob = self.ops.choose(logits, desk.noise, desk.temperature, desk.sampling)
        desk.token.copy_(token)
        desk.logprob.copy_(logprob)
        desk.over.logical_or_((token[:, None] == self.end).any(1))

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[:, None].float() * self.frequencies
        return angles.cos() * self.turn_scale, angles.sin() * self.turn_scale

    # Room

    def _desk(self, rows: int, length: int) -> Desk:
        if (rows, length) not in self._desks:
            self._grow(rows, length)
            size, shape = rows * self.kv * length * self.size, (rows, self.kv, length, self.size)
            cache = [(k[:size].view(shape), v[:size].view(shape)) for k, v in self._store]
            whole = {"dtype": torch.long, "device": self.device}
            self._desks[rows, length] = Desk(
                token=torch.full((rows,), self.pad, **whole),
                logprob=torch.zeros(rows, device=self.device),
                over=torch.zeros(rows, dtype=torch.bool, device=self.device),
                position=torch.zeros(rows, **whole),
                row=torch.zeros(rows, **whole),
                source=torch.zeros(rows, **whole),
                temperature=torch.ones(1, device=self.device),
                sampling=torch.ones(1, device=self.device),
                noise=self._noise[:rows],
                cache=cache,
            )
        return self._desks[rows, length]

    def _grow(self, rows: int, length: int) -> None:
        """Room for the cache, if it lacks: what was captured on the old room goes with it."""
        size = rows * self.kv * length * self.size
        if self._store.shape[-1] >= size and len(self._noise) >= rows:
            return
        size = max(size, self._store.shape[-1])
        most = max(rows, len(self._noise))
        self._desks.clear()
        self._graphs.clear()
        # A pool whose last graph is gone takes no others.
        self._pool = torch.cuda.graph_pool_handle() if self.graphs else None
        self._store, self._noise = self._store.new_empty(0), self._noise.new_empty(0)
        vocabulary, layers = len(self.head), len(self.layers)
        needed = 2 * layers * size * self.dtype.itemsize + 4 * most * vocabulary
        free = self.memory if self.memory is not None else free_bytes(self.device)
        if free is not None and needed > free:
            raise UserError(
                f"the cache for {rows} episodes of {length} tokens takes {needed / 1e9:.3g} GB and "
                f"{free / 1e9:.3g} GB are free: about {rows * free // needed} fit side by side; "
                "lower algorithm.tasks, algorithm.group or algorithm.answer_tokens"
            )
        # Zeros, because plain attention multiplies what it has not filled by 0.
        self._store = self._store.new_zeros(layers, 2, size)
        self._noise = self._noise.new_full((most, vocabulary), 0.5)


def fused_ops() -> Ops:
    try:
        from fedrl.llm.generation import decode_kernels
    except ImportError as error:
        raise UserError(
            "the CUDA engine's kernels need the package triton, which PyTorch for CUDA brings; "
            'install it, or set algorithm.rollouts to "plain"'
        ) from error
    return Ops(
        decode_kernels.norm,
        decode_kernels.gate,
        decode_kernels.rotate,
        decode_kernels.attend,
        decode_kernels.choose,
    )


def free_bytes(device: torch.device) -> int | None:
    """What the GPU has free, with what PyTorch holds but does not use; None without a GPU."""
    if device.type != "cuda":
        return None
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def rows_bucket(rows: int) -> int:
    """Powers of two up to 64, then multiples of 64: at most as many again idle, few graphs."""
    return 1 << (rows - 1).bit_length() if rows <= 64 else up(rows, 64)


def up(count: int, step: int) -> int:
    return -(-count // step) * step


def passes(prompts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, Sequence[tuple[int, ...]]]]:
    """Parts of prompts sorted by length, padded no larger than READ, with each part's start."""
    start = 0
    for i in range(1, len(prompts) + 1):
        if i == len(prompts) or (i - start + 1) * len(prompts[i]) > READ:
            yield start, prompts[start:i]
            start = i
