"""Completions at a GPU's speed: a sampler with a decoder of its own.

transformers' `generate` waits for kernel launches: its time per token is the same for 1 prompt and
for 500. Here decode steps, sampling included, are captured in a CUDA graph per bucket of (rows,
cache length), several steps in one, and replayed; the key-value cache has a fixed place; attention
reads only what is filled, and each key-value head once for its group of query heads. Prompts are
read packed, and what they begin with alike once (`reading`). An answer that ends makes room for the
next prompt while the others go on (`stream`), and worlds are stepped while the GPU decodes.

Works for causal models of the Llama kind (`packed_weights`). The weights are a copy in `dtype`:
`push` after every change of the learner's. Without a GPU the same code runs uncaptured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from fedrl.core.types import UserError
from fedrl.llm.generation import torch_ops
from fedrl.llm.generation.decode_buffers import ROUND, DecodeBuffers, bucket_rows, round_up
from fedrl.llm.generation.decode_room import DecodeRoom
from fedrl.llm.generation.packed_weights import PackedWeights
from fedrl.llm.generation.reading import read, readings, rest_of_layer
from fedrl.llm.generation.row_noise import Draws
from fedrl.llm.generation.sampler import (
    Answer,
    Answered,
    Completions,
    Generators,
    Prompts,
    Request,
    draw_seeds,
    fill_uniform,
)
from fedrl.llm.generation.torch_ops import DecodeOps
from fedrl.llm.memory import read_tokens
from fedrl.llm.model_types import LanguageModel
from fedrl.llm.transfer import sent
from fedrl.llm.weights import MergedWeights, base_model

CHECK = 8
"""Steps of a graph, and between two looks at which answers have ended: a look waits for the GPU."""
ADMIT = 8
"""Prompts are read when this part of the rows is free: reading few at a time wastes launches."""
WIDE = hasattr(torch.ops.aten.mm, "dtype")
"""Whether this PyTorch multiplies in half precision into single precision (2.8 and later)."""


class CudaSampler:
    """See the module's docstring.

    `fused` (default: on a GPU) takes the Triton kernels, `graphs` (likewise) captures; with
    `seeded` (default: with both) random numbers are each row's own, else drawn for the batch as the
    plain sampler does; `memory` is the most bytes that the cache may take, by default what the GPU
    has free.
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
        seeded: bool | None = None,
    ) -> None:
        on_gpu = next(model.parameters()).device.type == "cuda"
        self.dtype = dtype or (torch.bfloat16 if on_gpu else torch.float32)
        self.weights = PackedWeights(base_model(model), self.dtype)
        self.device = self.weights.device
        self.graphs = on_gpu if graphs is None else graphs
        self.fused = on_gpu if fused is None else fused
        self.streams = (self.fused and self.graphs) if seeded is None else seeded
        self.ops: DecodeOps = fused_ops() if self.fused else torch_ops
        self._read_tokens = read_tokens(self.weights.shape)
        self.end = torch.tensor(list(end), dtype=torch.long, device=self.device)
        self.push(MergedWeights(model), 0)
        self.room = DecodeRoom(self.weights, pad, self.graphs, not self.streams, memory)

    def push(self, weights: Mapping[str, Tensor] | None, version: int) -> None:
        self.weights.push(weights)
        self.version = version

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, limit: int, temperature: float, generator: Generators
    ) -> Completions:
        count, longest = len(prompts), max(map(len, prompts))
        buffers = self._open(count, longest + limit, temperature)
        seeds = [0] * count
        if self.streams and temperature:
            seeds = draw_seeds(count, 2**62, generator)
        elif temperature:
            fill_uniform(buffers.noise[:count], generator)
        self._admit(buffers, prompts, list(range(count)), seeds, [limit] * count)
        step, looked = 1, 0
        every = CHECK if self.graphs else 1
        while step < limit and not (step - looked >= every and self._all_over(buffers)):
            looked = step if step - looked >= every else looked
            steps = CHECK if self.graphs and self.streams and limit - step >= CHECK else 1
            if temperature and not self.streams:
                fill_uniform(buffers.noise[:count], generator)
            step += steps
            self._advance(buffers, longest + step - 1, steps)
        return Completions(*self._told(buffers, list(range(count))))

    @torch.no_grad()
    def stream(
        self,
        requests: Sequence[Request],
        limit: int,
        temperature: float,
        answered: Answered,
        rows: int | None = None,
        most: int | None = None,
    ) -> None:
        """Complete these prompts and all that `answered` asks for when it is told of answers, at
        most `rows` at a time; no prompt has more than `most` tokens.

        Each begins when there is a row for it; what it says depends on its seed alone. `answered`
        is called while the GPU goes on with the others.
        """
        assert self.streams, "random numbers of the batch have no meaning here"
        waiting, rows = list(requests), min(len(requests), rows or len(requests))
        while waiting:
            # Prompts grow: room for half as much again, before all must end for more room.
            longest = max(len(request.prompt) for request in waiting)
            room = longest + longest // 2
            room = room if most is None else max(min(room, most), longest)
            buffers = self._open(rows, room + limit, temperature)
            waiting = self._stream(buffers, waiting, rows, limit, answered)

    def _stream(
        self,
        buffers: DecodeBuffers,
        waiting: list[Request],
        rows: int,
        limit: int,
        answered: Answered,
    ) -> list[Request]:
        """Until nothing runs; gives what these buffers have no room for, and those behind it."""
        running: dict[int, Request] = {}
        ended: list[Answer] = []
        room = buffers.shape[1] - limit
        while True:
            fits = all(len(request.prompt) <= room for request in waiting)
            free = [row for row in range(rows) if row not in running]
            if waiting and fits and (not running or len(free) >= max(rows // ADMIT, 1)):
                chosen = dict(zip(free, waiting, strict=False))
                prompts = [request.prompt for request in chosen.values()]
                seeds = [request.seed for request in chosen.values()]
                limits = [min(request.limit or limit, limit) for request in chosen.values()]
                self._admit(buffers, prompts, list(chosen), seeds, limits)
                running |= chosen
                waiting = waiting[len(chosen) :]
            if running and limit > 1:
                longest = max(len(request.prompt) for request in running.values()) + limit
                self._advance(buffers, longest, CHECK if self.graphs else 1)
            if ended:
                waiting += answered(ended)
            if not running:
                if ended and waiting:
                    ended = []
                    continue
                return waiting
            over = buffers.over.tolist()
            done = [row for row in running if over[row]]
            tokens, logprobs = self._told(buffers, done)
            ended = [
                Answer(running.pop(row).key, said, logs)
                for row, said, logs in zip(done, tokens, logprobs, strict=True)
            ]

    # Rows

    def _open(self, rows: int, length: int, temperature: float) -> DecodeBuffers:
        """Buffers with room for so many rows, all of them free."""
        buffers = self.room.buffers(bucket_rows(rows), round_up(length, ROUND))
        buffers.over.fill_(True)
        buffers.temperature.fill_(temperature or 1.0)
        buffers.sampling.fill_(float(temperature > 0))
        return buffers

    def _admit(
        self,
        buffers: DecodeBuffers,
        prompts: Prompts,
        rows: list[int],
        seeds: list[int],
        limits: list[int],
    ) -> None:
        """Read the prompts into their rows, and say the first token of each."""
        lengths = [len(prompt) for prompt in prompts]
        known = dict(zip(rows, zip(lengths, seeds, limits, strict=True), strict=True))
        for reading in readings(prompts, rows, self.device, self._read_tokens):
            state = read(reading, self.weights, self.ops, buffers.cache)
            at = reading.rows
            facts = torch.tensor([known[row] for row in reading.order])
            position, seed, limit = sent(facts, self.device).T.contiguous()
            buffers.position[at] = position
            buffers.limit[at] = limit
            buffers.seeds[at] = seed
            zero = torch.zeros_like(at)
            noise = Draws(seed, zero) if self.streams else buffers.noise[at]
            token, logprob = self._choose(state, noise, buffers)
            buffers.token[at] = token
            buffers.said[at, 0] = token
            buffers.logprobs[at, 0] = logprob
            buffers.count[at] = 1
            buffers.over[at] = self._ends(token) | (limit <= 1)

    def _all_over(self, buffers: DecodeBuffers) -> bool:
        return bool(buffers.over.all())

    def _told(
        self, buffers: DecodeBuffers, rows: list[int]
    ) -> tuple[list[list[int]], list[list[float]]]:
        """What these rows have said, and its log-probabilities."""
        if not rows:
            return [], []
        at = torch.tensor(rows, device=self.device)
        counts = buffers.count[at]
        most = int(counts.max())
        said, logs = buffers.said[at, :most].tolist(), buffers.logprobs[at, :most].tolist()
        lengths = counts.tolist()
        return (
            [row[:n] for row, n in zip(said, lengths, strict=True)],
            [row[:n] for row, n in zip(logs, lengths, strict=True)],
        )

    # One token

    def _advance(self, buffers: DecodeBuffers, length: int, steps: int = 1) -> None:
        """The next tokens of every row; `length` is the longest row with the last of them."""
        # The kernels stop at each row's own length, plain attention at a multiple for all.
        filled = buffers.shape[1] if self.fused else round_up(length, ROUND)
        if not self.graphs:
            for _ in range(steps):
                self._step(buffers, filled)
            return
        key = (*buffers.shape, filled, steps)
        if key not in self.room.graphs:
            more = {} if steps == 1 else {"steps": steps}
            self.room.graphs[key] = self._capture(buffers, filled, **more)
        self.room.graphs[key].replay()

    def _step(self, buffers: DecodeBuffers, filled: int) -> None:
        weights, ops = self.weights, self.ops
        x = embedding(buffers.token, weights.embed)
        cos, sin = weights.rope(buffers.position)
        # A row that is over goes on to no purpose: let it read as little as may be.
        lengths = buffers.position * ~buffers.over + 1
        for layer, (keys, values) in zip(weights.layers, buffers.cache, strict=True):
            qkv = linear(ops.rms_norm(x, layer.before, weights.eps), layer.qkv, layer.bias)
            mixed = ops.turned_attention(
                qkv, cos, sin, buffers.position, keys, values, lengths, filled, weights.scale
            )
            rest_of_layer(x, layer, mixed, weights, ops)
        noise = Draws(buffers.seeds, buffers.count) if self.streams else buffers.noise
        token, logprob = self._choose(x, noise, buffers)
        ops.say(buffers, token, logprob, self.end)

    def _ends(self, token: Tensor) -> Tensor:
        return (token[:, None] == self.end).any(1)

    def _choose(
        self, x: Tensor, noise: Tensor | Draws, buffers: DecodeBuffers
    ) -> tuple[Tensor, Tensor]:
        """A token per row of x, and its log-probability."""
        state = self.ops.rms_norm(x, self.weights.final, self.weights.eps)
        if state.is_cuda and WIDE and self.dtype != torch.float32:
            logits = torch.mm(state, self.weights.head.T, out_dtype=torch.float32)
        else:
            logits = linear(state, self.weights.head).float()
        return self.ops.sample(logits, noise, buffers.temperature, buffers.sampling)

    def _capture(self, buffers: DecodeBuffers, filled: int, steps: int = 1) -> torch.cuda.CUDAGraph:
        """Steps as a graph. The step before them compiles; it is undone and told to nobody."""
        kept = [tensor.clone() for tensor in buffers.moved]
        aside, here = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            self._step(buffers, filled)
        here.wait_stream(aside)
        for tensor, value in zip(buffers.moved, kept, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.room.pool):
            for _ in range(steps):
                self._step(buffers, filled)
        return graph


def fused_ops() -> DecodeOps:
    try:
        from fedrl.llm.generation import decode_kernels
    except ImportError as error:
        raise UserError(
            "the CUDA engine's kernels need the package triton, which PyTorch for CUDA brings; "
            'install it, or set algorithm.rollouts to "plain"'
        ) from error
    return decode_kernels
