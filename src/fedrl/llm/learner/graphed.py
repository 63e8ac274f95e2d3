"""The packed layers as CUDA graphs, so that the GPU does not wait for the host.

A small model's kernels are shorter than their launches: an optimiser step of 64 rows × 424 tokens
and 135M parameters took 231 ms by the clock on an H200 and 77 ms in kernels. A graph of all layers
on the way there, and one on the way back, is one launch each. What is captured has fixed addresses
and sizes, so

- rows are filled up to a bucket of tokens, with rows of zeros that nobody reads and whose gradient
  is nothing (`padding`);
- a bucket is captured when it is seen for the second time: the first pass compiles its kernels;
- all buckets share one store of memory, which has room for the largest: a larger one begins anew.
  So a pass must end before the next begins; one that begins earlier is computed launch by launch.

Layers that learn nothing are not captured, nor any once memory ran out for it.

The numbers are those of the same kernels, added up in the same order within a row.
"""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedrl.llm import memory
from fedrl.llm.generation.decode_buffers import free_bytes
from fedrl.llm.learner.layer import Kept, Plan, Tokens, backward, forward
from fedrl.llm.learner.plain_ops import LearnerOps
from fedrl.llm.out_of_memory import is_out_of_memory
from fedrl.llm.rl.batches import PackedRows
from fedrl.llm.varlen_attention import Sequences

STEP = 2048
"""Buckets hold multiples of so many tokens."""
SPARE = 80
"""Least tokens of padding: more than there are rows of it."""
ROWS = (16, 64)
"""Least rows of padding, and what a bucket's rows are a multiple of."""
LONGEST = 512
"""Least length of a bucket's longest row, of which there are powers of two."""
MOST_PARAMETERS = 600_000_000
"""Larger models keep the GPU busy by themselves."""
MOST_BUCKETS = 16
"""Rows of others are computed launch by launch."""
LOG = logging.getLogger("fedrl")


Layered = tuple[Plan, list[Tensor]]
"""A layer's plan and its parameters."""


class Bucket(NamedTuple):
    tokens: int
    read: int  # tokens that are attended to; 0 where they are the same
    rows: int
    asked: int  # the longest row
    attended: int


def bucket_of(rows: PackedRows) -> Bucket:
    tokens = _up(len(rows.ids) + SPARE, STEP)
    read = 0
    if rows.where is not None:
        read = _up(len(rows.where) + tokens - len(rows.ids) + SPARE, STEP)
    count = _up(len(rows.asked.offsets) - 1 + ROWS[0], ROWS[1])
    return Bucket(tokens, read, count, _power(rows.asked.longest), _power(rows.read.longest))


def padding(count: int, rows: int) -> list[int]:
    """Where so many rows, nearly alike in length, end that hold so many tokens."""
    return [(i + 1) * count // rows for i in range(rows)]


def _up(count: int, step: int) -> int:
    return -(-count // step) * step


def _power(longest: int) -> int:
    return max(1 << (longest - 1).bit_length(), LONGEST)


class Pass:
    """One bucket: its inputs, and the two graphs. Without `captures` the same is run anew."""

    def __init__(self, owner: GraphedLayers, bucket: Bucket) -> None:
        device, self.bucket = owner.device, bucket
        # Who has this: in a cycle, a GPU's memory would wait for the garbage collector.
        self.owner: GraphedLayers = weakref.proxy(owner)
        # y is the last layer's result, then the gradient of that, then the gradient of x.
        self.x, self.y = owner.buffers[:, : bucket.tokens]
        self.positions = torch.zeros(bucket.tokens, dtype=torch.long, device=device)
        self.asked = torch.zeros(bucket.rows + 1, dtype=torch.int32, device=device)
        self.read = self.asked
        self.where: Tensor | None = None
        if bucket.read:
            self.read = torch.zeros_like(self.asked)
            self.where = torch.zeros(bucket.read, dtype=torch.long, device=device)
        self.kept: list[Kept] = []
        self.there: torch.cuda.CUDAGraph | None = None
        self.back: torch.cuda.CUDAGraph | None = None

    def fill(self, x: Tensor, rows: PackedRows) -> None:
        count, known = len(x), len(rows.asked.offsets)
        self.x[:count].copy_(x)
        self.x[count:].zero_()
        self.positions[:count].copy_(rows.positions)
        self.positions[count:].zero_()
        more = self.bucket.rows + 1 - known
        self._offsets(self.asked, rows.asked.offsets, count, self.bucket.tokens, more)
        if self.where is not None:
            assert rows.where is not None
            read = len(rows.where)
            self._offsets(self.read, rows.read.offsets, read, self.bucket.read, more)
            self.where[:read].copy_(rows.where)
            # Any padding will do, and one token for all would be added to by all at once.
            spread = torch.arange(self.bucket.read - read, device=x.device)
            self.where[read:] = count + spread % (self.bucket.tokens - count)

    def _offsets(self, room: Tensor, known: Tensor, count: int, whole: int, rows: int) -> None:
        room[: len(known)].copy_(known)
        ends = torch.tensor(padding(whole - count, rows), dtype=torch.int32) + count
        if room.is_cuda:
            ends = ends.pin_memory()
        room[len(known) :].copy_(ends, non_blocking=True)

    def tokens(self) -> Tokens:
        owner, bucket = self.owner, self.bucket
        angles = self.positions[:, None].float() * owner.frequencies
        asked = Sequences(self.asked, bucket.asked)
        read = Sequences(self.read, bucket.attended) if bucket.read else asked
        cos, sin = angles.cos() * owner.scale, angles.sin() * owner.scale
        return Tokens(asked, read, self.where, cos, sin, owner.dtype, owner.ops)

    def capture(self) -> None:
        """Both graphs, of inputs that are filled: the pass before compiles. What is kept between
        them stays where it is, and other buckets may have the same memory afterwards."""
        aside, here = torch.cuda.Stream(self.x.device), torch.cuda.current_stream(self.x.device)
        aside.wait_stream(here)
        try:
            with torch.cuda.stream(aside):
                self._come(self._go())
        finally:  # where memory runs out, what is being written is given away
            here.wait_stream(aside)
        torch.cuda.empty_cache()
        there, back = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(there, pool=self.owner.pool):
            known = self._go()
        with torch.cuda.graph(back, pool=self.owner.pool):
            self._come(known)
        self.there, self.back, self.kept = there, back, []

    def forward(self) -> Tensor:
        if self.there is not None:
            self.there.replay()
        else:
            self.known = self._go()
        return self.y

    def backward(self) -> Tensor:
        if self.back is not None:
            self.back.replay()
        else:
            self._come(self.known)
        return self.y

    @torch.no_grad()
    def _go(self) -> Tokens:
        known, x, self.kept = self.tokens(), self.x, []
        for plan, parameters in self.owner.layers:
            x, kept = forward(x, plan, known, parameters)
            self.kept.append(kept)
        self.y.copy_(x)
        return known

    @torch.no_grad()
    def _come(self, known: Tokens) -> None:
        grad, layers = self.y, self.owner.layers
        for number in reversed(range(len(layers))):
            plan, parameters = layers[number]
            learned = [p.requires_grad for p in parameters]
            grad, found = backward(grad, self.kept.pop(), plan, known, parameters, learned)
            for i, room in enumerate(self.owner.gradients[number]):
                if room is not None:
                    room.copy_(found[i])
        self.y.copy_(grad)


class GraphedLayers:
    """All layers of one model's body, and the buckets that were seen."""

    def __init__(
        self,
        layers: Sequence[Layered],
        frequencies: Tensor,
        scale: float,
        dtype: torch.dtype,
        ops: LearnerOps,
        shape: memory.Shape,
        captures: bool = True,
    ) -> None:
        self.layers, self.dtype, self.ops, self.scale = layers, dtype, ops, scale
        self.shape, self.captures = shape, captures
        self.parameters = [p for _, parameters in layers for p in parameters]
        self.identity = identity(self.parameters)
        self.device, self.width = self.parameters[0].device, len(layers[0][1][0])
        self.frequencies = frequencies.to(self.device)
        self.on = any(p.requires_grad for p in self.parameters)
        self.gradients: list[list[Tensor | None]] = []
        self.buffers = torch.zeros(2, 0, self.width, device=self.device)
        self.pool: Any = None
        self.passes: dict[Bucket, Pass] = {}
        self.seen: Counter[Bucket] = Counter()
        self.lease: weakref.ref[Lease] | None = None

    def run(self, x: Tensor, rows: PackedRows) -> Tensor | None:
        """The last layer's result [N, d]; None where it must be computed launch by launch."""
        running = self.lease() if self.lease is not None else None
        if not self.on or (running is not None and not running.ended):
            return None
        found = self._filled(x.detach(), rows)
        if found is None:
            return None
        lease = Lease(self, found)
        if torch.is_grad_enabled():
            self.lease = weakref.ref(lease)
        y: Tensor = Layers.apply(x, lease, *self.parameters)
        return y

    def _filled(self, x: Tensor, rows: PackedRows) -> Pass | None:
        """A pass of these rows that can be run; None where there is none, or no room for one."""
        bucket = bucket_of(rows)
        self.seen[bucket] += 1
        found = self.passes.get(bucket)
        if found is None and (
            self.seen[bucket] == 1 or len(self.passes) == MOST_BUCKETS or not self._fits(bucket)
        ):
            return None
        try:
            found = found or self._new(bucket)
            found.fill(x, rows)
            if self.captures and found.there is None:
                found.capture()
            return found
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        self._clear(0)
        self.on, self.gradients = False, []
        LOG.warning("no memory for CUDA graphs of the learner: it goes on without, and more slowly")
        return None

    def _fits(self, bucket: Bucket) -> bool:
        """Beside the store of a larger bucket there must be room for a pass that is computed launch
        by launch. What the smaller store holds is free by then."""
        if not self.captures or bucket.tokens <= self.buffers.shape[1]:
            return True
        needed = pass_bytes(self.shape, bucket.tokens, self.dtype.itemsize)
        free = free_bytes(self.device)
        return free is None or free > 2.2 * needed

    def _clear(self, tokens: int) -> None:
        """Nothing is captured, and the store is for passes of so many tokens. Its addresses are
        others, and a pool of which all graphs are gone cannot be used again."""
        self.passes.clear()
        self.buffers = torch.zeros(2, tokens, self.width, device=self.device)
        self.pool = torch.cuda.graph_pool_handle() if self.captures else None

    def _new(self, bucket: Bucket) -> Pass:
        if bucket.tokens > self.buffers.shape[1]:
            self._clear(bucket.tokens)
        if not self.gradients:
            self.gradients = [
                [torch.empty_like(p) if p.requires_grad else None for p in parameters]
                for _, parameters in self.layers
            ]
        found = self.passes[bucket] = Pass(self, bucket)
        return found


def pass_bytes(shape: memory.Shape, tokens: int, number: int) -> int:
    """What a pass of so many tokens holds at its height, but for the vocabulary's part. Where
    `packed_bytes` counts the last norm, captured layers have their buffers: as much."""
    each = memory.packed_bytes(shape, number, False) + memory.backward_bytes(shape, number)
    return tokens * each


class Lease:
    """A pass between its way there and its way back; it ends when nobody can ask for that."""

    def __init__(self, owner: GraphedLayers, found: Pass) -> None:
        self.owner, self.found, self.ended = owner, found, False


class Layers(torch.autograd.Function):
    """A pass, to autograd."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lease: Lease, *parameters: Tensor) -> Tensor:
        ctx.lease = lease
        return lease.found.forward()[: len(x)].clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        lease: Lease = ctx.lease
        assert not lease.ended, "what a pass kept is gone after its way back"
        lease.ended, found = True, lease.found
        found.y[: len(grad)].copy_(grad)
        found.y[len(grad) :].zero_()
        dx = found.backward()[: len(grad)]
        # Copies, because the next pass writes there again.
        rooms = [room for rooms in lease.owner.gradients for room in rooms]
        gradients = [None if room is None else room.clone() for room in rooms]
        return dx if ctx.needs_input_grad[0] else None, None, *gradients


Identity = frozenset[tuple[int, int, bool]]


def identity(parameters: Iterable[Tensor]) -> Identity:
    """What was captured is of these parameters, at these addresses."""
    return frozenset((id(p), p.data_ptr(), p.requires_grad) for p in parameters)


_GRAPHED: weakref.WeakKeyDictionary[nn.Module, GraphedLayers] = weakref.WeakKeyDictionary()


def graphed_layers(body: nn.Module) -> GraphedLayers | None:
    """Of a body that has the same parameters as when they were made."""
    found = _GRAPHED.get(body)
    layers: Any = body.layers
    if found is not None and found.identity != identity(layers.parameters()):
        del _GRAPHED[body]
        return None
    return found


def keep_graphed(body: nn.Module, layers: GraphedLayers) -> GraphedLayers:
    _GRAPHED[body] = layers
    return layers
