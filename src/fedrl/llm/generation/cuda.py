"""Completions at a GPU's speed: a sampler with a decoder of its own.

transformers' `generate` waits for kernel launches: its time per token is the same for 1 prompt and
for 500. Here one decode step, sampling included, is captured in a CUDA graph per bucket of (rows,
cache length) and replayed; the key-value cache has a fixed place; attention reads only what is
filled, and each key-value head once for its group of query heads. Prompts are padded on the right,
so reading them needs no mask beyond causality, and equal prompts are read once.

Works for causal models of the Llama kind (`packed_weights`). The weights are a copy in `dtype`:
`push` after every change of the learner's. Without a GPU the same code runs uncaptured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from fedrl.core.types import UserError
from fedrl.llm.generation import torch_ops
from fedrl.llm.generation.decode_buffers import (
    ROUND,
    DecodeBuffers,
    bucket_rows,
    free_bytes,
    round_up,
)
from fedrl.llm.generation.packed_weights import Layer, PackedWeights
from fedrl.llm.generation.sampler import Completions, Prompts, cut_at_end, pad_right
from fedrl.llm.generation.torch_ops import DecodeOps
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.weights import MergedWeights, base_model

CHECK = 8
"""Tokens between two looks at whether all completions have ended: a look waits for the GPU."""
READ = 65_536
"""Prompt tokens per forward pass: enough to fill a GPU, and a bound on its scratch memory."""
WIDE = hasattr(torch.ops.aten.mm, "dtype")
"""Whether this PyTorch multiplies in half precision into single precision (2.8 and later)."""


class CudaSampler:
    """See the module's docstring.

    `fused` (default: on a GPU) takes the Triton kernels, `graphs` (likewise) captures; `memory` is
    the most bytes that the cache may take, by default what the GPU has free.
    """

    copies_weights = True
    version: int

    def __init__(
        self,
        model: LanguageModel,
        end: Sequence[int],
        pad: int,
        dtype: torch.dtype | None = None,
        fused: bool | None = None,
        graphs: bool | None = None,
        memory: int | None = None,
    ) -> None:
        on_gpu = next(model.parameters()).device.type == "cuda"
        self.dtype = dtype or (torch.bfloat16 if on_gpu else torch.float32)
        self.weights = PackedWeights(base_model(model), self.dtype)
        self.device = self.weights.device
        self.graphs = on_gpu if graphs is None else graphs
        self.fused = on_gpu if fused is None else fused
        self.ops: DecodeOps = fused_ops() if self.fused else torch_ops
        self.memory, self.pad = memory, pad
        self.end = torch.tensor(list(end), dtype=torch.long, device=self.device)
        self.push(MergedWeights(model), 0)
        self._store = torch.empty(0, dtype=self.dtype, device=self.device)
        self._noise = torch.empty(0, device=self.device)
        self._buffers: dict[tuple[int, int], DecodeBuffers] = {}
        self._graphs: dict[tuple[int, int, int], torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.graphs else None

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        self.weights.push(weights)
        self.version = version

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, limit: int, temperature: float, generator: torch.Generator
    ) -> Completions:
        unique = sorted(dict.fromkeys(tuple(prompt) for prompt in prompts), key=len)
        number = {prompt: i for i, prompt in enumerate(unique)}
        which = [number[tuple(prompt)] for prompt in prompts]
        longest = len(unique[-1])
        buffers = self._buffers_for(bucket_rows(len(prompts)), round_up(longest + limit, ROUND))
        self._assign_rows(buffers, which, unique, temperature)
        hidden = self._prefill(unique, buffers)
        self._share_prefix(buffers, hidden, which, len(unique), longest)
        tokens = torch.empty(limit, len(buffers.token), dtype=torch.long, device=self.device)
        logprobs = torch.empty(limit, len(buffers.token), device=self.device)
        count, step = len(prompts), 0
        every = CHECK if self.graphs else 1
        for step in range(limit):
            if temperature:
                buffers.noise[:count].uniform_(generator=generator)
            if step == 0:
                self._sample(hidden, buffers)
            else:
                self._advance(buffers, longest + step)
            tokens[step].copy_(buffers.token)
            logprobs[step].copy_(buffers.logprob)
            if step % every == every - 1 and bool(buffers.over.all()):
                break
        said = tokens[: step + 1, :count].T.cpu(), logprobs[: step + 1, :count].T.cpu()
        return cut_at_end(*said, self.end.cpu())

    # Reading the prompts

    def _assign_rows(
        self,
        buffers: DecodeBuffers,
        which: list[int],
        unique: list[tuple[int, ...]],
        temperature: float,
    ) -> None:
        """Row u of the cache goes to the first who has prompt u, others come behind."""
        first: dict[int, int] = {}
        row, behind = [], len(unique)
        for i, u in enumerate(which):
            if first.setdefault(u, i) == i:
                row.append(u)
            else:
                row.append(behind)
                behind += 1
        row += range(len(which), len(buffers.row))
        position = [0] * len(row)
        for i, u in enumerate(which):
            position[row[i]] = len(unique[u])
        buffers.row.copy_(torch.tensor(row))
        buffers.source.copy_(torch.tensor(row).argsort())
        buffers.position.copy_(torch.tensor(position))
        buffers.over.copy_(torch.arange(len(row)) >= len(which))
        buffers.temperature.fill_(temperature or 1.0)
        buffers.sampling.fill_(float(temperature > 0))

    def _prefill(self, unique: list[tuple[int, ...]], buffers: DecodeBuffers) -> Tensor:
        """The state after each prompt, by rows of the cache, whose first rows it fills."""
        # All of it goes to the device first: a copy later would wait for the passes before it.
        parts = [(start, *pad_right(part, self.pad)) for start, part in passes(unique)]
        sent = [(start, ids.to(self.device), n.to(self.device)) for start, ids, _, n in parts]
        last = self.weights.embed.new_zeros(len(buffers.row), self.weights.embed.shape[1])
        for start, ids, lengths in sent:
            rows, length = ids.shape
            positions = torch.arange(length, device=self.device).repeat(rows)
            cos, sin = self._rope(positions)
            x = embedding(ids.flatten(), self.weights.embed)
            for layer, (keys, values) in zip(self.weights.layers, buffers.cache, strict=True):
                k, v = keys[start : start + rows], values[start : start + rows]
                q = self._attention_inputs(x, layer, cos, sin, positions, k, v)
                mixed = scaled_dot_product_attention(
                    q.view(rows, length, self.weights.heads, self.weights.size).transpose(1, 2),
                    k[:, :, :length],
                    v[:, :, :length],
                    is_causal=True,
                    scale=self.weights.scale,
                    enable_gqa=self.weights.heads != self.weights.kv,
                )
                self._rest_of_layer(x, layer, mixed.transpose(1, 2).reshape(rows * length, -1))
            ends = torch.arange(rows, device=self.device) * length + lengths - 1
            last[start : start + rows] = x[ends]
        return last

    def _share_prefix(
        self, buffers: DecodeBuffers, hidden: Tensor, which: list[int], unique: int, length: int
    ) -> None:
        """Rows that have another's prompt take over what was read for it."""
        if unique == len(which):
            return
        behind = buffers.source[unique : len(which)].tolist()
        again = torch.tensor([which[i] for i in behind], device=self.device)
        rows = slice(unique, len(which))
        hidden[rows] = hidden[again]
        for both in buffers.cache:
            for tensor in both:
                tensor[rows, :, :length] = tensor[again, :, :length]

    # One token

    def _advance(self, buffers: DecodeBuffers, length: int) -> None:
        """The next token of every row; `length` is the longest row with this step's token."""
        # The kernels stop at each row's own length, plain attention at a multiple for all.
        filled = buffers.shape[1] if self.fused else round_up(length, ROUND)
        if not self.graphs:
            self._step(buffers, filled)
            return
        key = (*buffers.shape, filled)
        if key not in self._graphs:
            self._graphs[key] = self._capture(buffers, filled)
        self._graphs[key].replay()

    def _step(self, buffers: DecodeBuffers, filled: int) -> None:
        x = embedding(buffers.token[buffers.source], self.weights.embed)
        cos, sin = self._rope(buffers.position)
        # An ended row goes on to no purpose until all have ended: let it read as little as may be.
        lengths = buffers.position * ~buffers.over[buffers.source] + 1
        for layer, (keys, values) in zip(self.weights.layers, buffers.cache, strict=True):
            q = self._attention_inputs(x, layer, cos, sin, buffers.position, keys, values)
            k, v = keys[:, :, :filled], values[:, :, :filled]
            self._rest_of_layer(x, layer, self.ops.attention(q, k, v, lengths, self.weights.scale))
        buffers.position.add_(1)
        self._sample(x, buffers)

    def _capture(self, buffers: DecodeBuffers, filled: int) -> torch.cuda.CUDAGraph:
        """A step as a graph. The step before it compiles; it is undone and told to nobody."""
        moved = (buffers.token, buffers.logprob, buffers.over, buffers.position)
        kept = [tensor.clone() for tensor in moved]
        aside, here = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step(buffers, filled)
        here.wait_stream(aside)
        for tensor, value in zip(moved, kept, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(buffers, filled)
        return graph

    def _attention_inputs(
        self, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor, positions: Tensor, *kv: Tensor
    ) -> Tensor:
        """Queries; keys and values go to their place in the cache."""
        qkv = linear(self.ops.rms_norm(x, layer.before, self.weights.eps), layer.qkv, layer.bias)
        return self.ops.rope(qkv, cos, sin, positions, *kv)

    def _rest_of_layer(self, x: Tensor, layer: Layer, mixed: Tensor) -> None:
        """The rest of a layer, added to `x` in place."""
        x.addmm_(mixed, layer.out.T)
        inner = linear(self.ops.rms_norm(x, layer.after, self.weights.eps), layer.up)
        x.addmm_(self.ops.swiglu(inner), layer.down.T)

    def _sample(self, x: Tensor, buffers: DecodeBuffers) -> None:
        state = self.ops.rms_norm(x[buffers.row], self.weights.final, self.weights.eps)
        if state.is_cuda and WIDE and self.dtype != torch.float32:
            logits = torch.mm(state, self.weights.head.T, out_dtype=torch.float32)
        else:
            logits = linear(state, self.weights.head).float()
        token, logprob = self.ops.sample(
            logits, buffers.noise, buffers.temperature, buffers.sampling
        )
        buffers.token.copy_(token)
        buffers.logprob.copy_(logprob)
        buffers.over.logical_or_((token[:, None] == self.end).any(1))

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[:, None].float() * self.weights.frequencies
        return angles.cos() * self.weights.rope_scale, angles.sin() * self.weights.rope_scale

    # Room

    def _buffers_for(self, rows: int, length: int) -> DecodeBuffers:
        if (rows, length) not in self._buffers:
            self._grow(rows, length)
            shape = (rows, self.weights.kv, length, self.weights.size)
            size = math.prod(shape)
            cache = [(k[:size].view(shape), v[:size].view(shape)) for k, v in self._store]

            def zeros(dtype: torch.dtype = torch.long) -> Tensor:
                return torch.zeros(rows, dtype=dtype, device=self.device)

            self._buffers[rows, length] = DecodeBuffers(
                token=zeros().fill_(self.pad),
                logprob=zeros(torch.float32),
                over=zeros(torch.bool),
                position=zeros(),
                row=zeros(),
                source=zeros(),
                temperature=torch.ones(1, device=self.device),
                sampling=torch.ones(1, device=self.device),
                noise=self._noise[:rows],
                cache=cache,
            )
        return self._buffers[rows, length]

    def _grow(self, rows: int, length: int) -> None:
        """Room for the cache, if it lacks: what was captured on the old room goes with it."""
        size = rows * self.weights.kv * length * self.weights.size
        if self._store.shape[-1] >= size and len(self._noise) >= rows:
            return
        size = max(size, self._store.shape[-1])
        most = max(rows, len(self._noise))
        self._buffers.clear()
        self._graphs.clear()
        # A pool whose last graph is gone takes no others.
        self._pool = torch.cuda.graph_pool_handle() if self.graphs else None
        self._store, self._noise = self._store.new_empty(0), self._noise.new_empty(0)
        vocabulary, layers = len(self.weights.head), len(self.weights.layers)
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


def fused_ops() -> DecodeOps:
    try:
        from fedrl.llm.generation import decode_kernels
    except ImportError as error:
        raise UserError(
            "the CUDA engine's kernels need the package triton, which PyTorch for CUDA brings; "
            'install it, or set algorithm.rollouts to "plain"'
        ) from error
    return decode_kernels


def passes(prompts: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, Sequence[tuple[int, ...]]]]:
    """Parts of prompts sorted by length, padded no larger than READ, with each part's start."""
    start = 0
    for i in range(1, len(prompts) + 1):
        if i == len(prompts) or (i - start + 1) * len(prompts[i]) > READ:
            yield start, prompts[start:i]
            start = i
