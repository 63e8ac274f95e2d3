"""Language agents: rollouts, learning and whole epochs, against `generate` and a padded loop.

python benchmarks/llm.py [rollout] [learn] [epoch] [profile] [shapes] [--model FOLDER] [--compile]
                         [--quick] [--json FILE]

The model has SmolLM2-135M's shape and random weights, prompts are 400 random tokens and answers
24; with --model it is the folder's model, and prompts are those of the household (chat) in its
own tokens. Answers never end early, so both sides decode the same number of tokens. There is no KL
term on either side. Without a GPU everything runs with tiny shapes, which only shows that it runs.
"""

from __future__ import annotations

import copy
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import harness
import torch
from torch import nn
from torch.nn.functional import linear

from fedrl.core.types import UserError
from fedrl.llm.generation.cuda import CudaSampler
from fedrl.llm.generation.sampler import Completions, pad_right
from fedrl.llm.model_setup import compile_layers
from fedrl.llm.rl.batches import Batching, to_rows
from fedrl.llm.rl.logprobs import answer_logprobs
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample
from fedrl.llm.weights import MergedWeights

PARTS = ("rollout", "learn", "epoch", "profile", "shapes")
GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if GPU else "cpu")
DTYPE = torch.bfloat16 if GPU else torch.float32

SMOLLM2 = ("llama", 576, 30, 9, 3, 1536, 49_152, True)
SHAPES = {  # kind, width, layers, heads, key-value heads, inner width, vocabulary, tied
    "qwen2.5-1.5b": ("qwen2", 1536, 28, 12, 2, 8960, 151_936, True),
    "qwen2.5-3b": ("qwen2", 2048, 36, 16, 2, 11_008, 151_936, True),
    "llama-3.2-3b": ("llama", 3072, 28, 24, 8, 8192, 128_256, True),
    "qwen2.5-7b": ("qwen2", 3584, 28, 28, 4, 18_944, 152_064, False),
}
LORA_ONLY = ("qwen2.5-7b",)
LORA_RANK = 32


@dataclass(frozen=True)
class Sizes:
    prompt: int = 400
    new: int = 24
    batches: tuple[int, ...] = (64, 512)
    steps: int = 10  # of an episode
    minibatch: int = 64
    repeats: int = 3


FULL = Sizes()
SHORT = Sizes(batches=(64,), steps=2, repeats=1)
TINY = Sizes(prompt=24, new=4, batches=(4, 8), steps=2, minibatch=4, repeats=1)


class Bench:
    """The model, the prompts, and both ways to do each thing."""

    def __init__(self, asked: Any) -> None:
        self.sizes = (SHORT if asked.quick else FULL) if GPU else TINY
        self.results, self.failed = harness.Results(), False
        self.compile, self.quick = asked.compile, asked.quick
        self.tokenizer: Any = None
        if asked.model:
            from fedrl.llm.policy import load

            policy = load(asked.model, DEVICE)
            self.model, self.tokenizer = policy.model, policy.tokenizer
        else:
            self.model = built(SMOLLM2, torch.float32)
        self.model.generation_config.eos_token_id = None
        config = self.model.config
        print(
            f"{config.model_type} of {parameters(self.model) / 1e6:.1f}M parameters, "
            f"{DTYPE} for rollouts",
            flush=True,
        )
        self.prompts = self._prompts(max(self.sizes.batches))
        lengths = [len(prompt) for prompt in self.prompts]
        print(f"prompts of {statistics.mean(lengths):.0f} tokens, answers of {self.sizes.new}\n")

    def _prompts(self, count: int) -> list[list[int]]:
        if self.tokenizer is None:
            rng, top = random.Random(0), self.model.config.vocab_size
            return [[rng.randrange(3, top) for _ in range(self.sizes.prompt)] for _ in range(count)]
        return household(self.tokenizer, count, self.sizes.prompt)

    # Both ways

    def plain_answer(self, model: Any, count: int) -> torch.Tensor:
        """`generate` on prompts padded on the left."""
        prompts = self.prompts[:count]
        ids, mask, _ = pad_right([prompt[::-1] for prompt in prompts], 0)
        return model.generate(
            input_ids=ids.flip(1).to(DEVICE),
            attention_mask=mask.flip(1).to(DEVICE),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            max_new_tokens=self.sizes.new,
            pad_token_id=0,
        )[:, ids.shape[1] :]

    def answer(self, engine: CudaSampler, count: int, limit: int = 0) -> Completions:
        generator = torch.Generator(DEVICE).manual_seed(1)
        return engine.generate(self.prompts[:count], limit or self.sizes.new, 1.0, generator)

    def samples(self, count: int) -> list[Sample]:
        """Step samples with random answers: their content costs nothing."""
        rng, new = random.Random(1), self.sizes.new
        top, logprob = self.model.config.vocab_size, [-10.0] * new
        prompts = [self.prompts[i % len(self.prompts)] for i in range(count)]
        return [
            Sample(i, 0, prompt, [rng.randrange(top) for _ in range(new)], logprob, "")
            for i, prompt in enumerate(prompts)
        ]

    def plain_learn(self, model: Any, optimizer: Any, samples: list[Sample]) -> None:
        """The usual loop: logits of every position, samples one by one."""
        model.train()
        size = self.sizes.minibatch
        for start in range(0, len(samples), size):
            chosen = samples[start : start + size]
            ids, mask, _ = pad_right([[*s.prompt, *s.answer] for s in chosen], 0)
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=GPU):
                out = model(input_ids=ids.to(DEVICE), attention_mask=mask.to(DEVICE))
            logs = out.logits[:, :-1].float().log_softmax(-1)
            told = logs.gather(-1, ids.to(DEVICE)[:, 1:, None])[..., 0]
            entropy = -(logs.exp() * logs).sum(-1)
            total = torch.zeros((), device=DEVICE)
            for i, sample in enumerate(chosen):
                here = slice(len(sample.prompt) - 1, len(sample.prompt) + len(sample.answer) - 1)
                ratio = (told[i, here] - told[i, here].detach()).exp()
                advantage = 1.0 if i % 2 else -1.0
                gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
                total = total - (gain + 0.001 * entropy[i, here]).mean() / len(chosen)
            optimizer.zero_grad(set_to_none=True)
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    def learn(self, model: nn.Module, optimizer: Any, samples: list[Sample], micro: int) -> None:
        advantages = [1.0 if i % 2 else -1.0 for i in range(len(samples))]
        generator = torch.Generator(DEVICE).manual_seed(2)
        batching = Batching(0, self.sizes.minibatch, micro, 1.0, generator)
        update(model, optimizer, samples, advantages, Loss(kl=0.0), batching)

    def attempt(self, name: str, work: Callable[[], Any]) -> Any:
        """None, and a line that says why, where it fails: the other parts go on."""
        try:
            return work()
        except torch.OutOfMemoryError:
            print(f"{name}: out of GPU memory", flush=True)
        except (RuntimeError, UserError) as error:
            print(f"{name}: failed: {str(error).strip().splitlines()[0]}", flush=True)
            self.failed = True
        if GPU:
            torch.cuda.empty_cache()
        return None

    # Parts

    def rollout(self) -> None:
        plain = half(self.model)
        kinds = {"ours": {}, "ours_unfused": {"fused": False}} if GPU else {"ours": {}}
        for count in self.sizes.batches:
            took = self.attempt(
                f"rollout plain at {count}",
                lambda n=count: timed(lambda: self.plain_answer(plain, n), self.sizes.repeats),
            )
            if took:
                self.tell_rollout("plain", count, took, took / self.sizes.new, None)
            for kind, options in kinds.items():
                measured = self.attempt(
                    f"rollout {kind} at {count}",
                    lambda n=count, o=options: self.measure_engine(n, o),
                )
                if measured:
                    self.tell_rollout(kind, count, measured[0], measured[1], took)

        self.attempt("agreement", lambda: self.agreement(self.sizes.batches[0]))

    @torch.no_grad()
    def agreement(self, count: int) -> None:
        """How far the log-probabilities of the rollout are from the learner's, in its precision."""
        said = self.answer(CudaSampler(self.model, (), 0), count)
        parts = zip(self.prompts, said.tokens, said.logprobs, strict=False)
        samples = [Sample(i, 0, p, t, x, "") for i, (p, t, x) in enumerate(parts)]
        learned, *_ = answer_logprobs(self.model, to_rows(samples, 0, DEVICE), 1.0)
        told = torch.tensor(said.logprobs, device=DEVICE).flatten()
        gap = (learned - told).abs()
        print(
            f"log-probabilities against the learner's: mean gap {gap.mean():.2g}, "
            f"most {gap.max():.2g}",
            flush=True,
        )
        self.results.add("rollout_gap", float(gap.mean()), "nats")

    def measure_engine(self, count: int, options: dict[str, Any]) -> tuple[float, float]:
        """Seconds of a call, and of a decoded token: what more tokens cost on top of one."""
        engine = CudaSampler(self.model, (), 0, **options)
        whole = timed(lambda: self.answer(engine, count), self.sizes.repeats)
        first = timed(lambda: self.answer(engine, count, 1), self.sizes.repeats)
        return whole, max(whole - first, 0.0) / (self.sizes.new - 1)

    def tell_rollout(
        self, kind: str, count: int, took: float, token: float, plain: float | None
    ) -> None:
        times = "" if plain is None else f", {plain / took:.1f}× plain"
        print(
            f"rollout {kind} at {count}: {count / took:,.0f} environment steps/s, "
            f"{1e3 * token:.2f} ms per token, prompts and the rest "
            f"{1e3 * (took - token * (self.sizes.new - 1)):.0f} ms{times}",
            flush=True,
        )
        self.results.add(f"rollout_{kind}_{count}", count / took, "steps/s")
        self.results.add(f"rollout_{kind}_{count}_token", 1e3 * token, "ms")
        if plain is not None:
            self.results.add(f"rollout_{kind}_{count}_ratio", plain / took, "times")

    def learn_part(self) -> None:
        size, count = self.sizes.minibatch, 2 * self.sizes.minibatch
        samples = self.samples(count)
        tokens = sum(len(s.prompt) + len(s.answer) for s in samples)
        rates: dict[str, float] = {}

        def measure(kind: str) -> None:
            model = copy.deepcopy(self.model)
            if kind == "compiled":
                compile_layers(model)
            optimizer = adamw(model)
            way = self.plain_learn if kind == "plain" else self.learn
            words = () if kind == "plain" else (size,)
            took = timed(lambda: way(model, optimizer, samples, *words), self.sizes.repeats)
            rates[kind] = tokens / took
            times = f", {rates[kind] / rates['plain']:.2f}× plain" if "plain" in rates else ""
            print(
                f"learn {kind}: {rates[kind]:,.0f} tokens/s, {took / 2 * 1e3:.0f} ms per "
                f"optimiser step of {size} rows{times}",
                flush=True,
            )
            self.results.add(f"learn_{kind}", rates[kind], "tokens/s")

        for kind in ("plain", "ours", *(("compiled",) if self.compile else ())):
            self.attempt(f"learn {kind}", lambda k=kind: measure(k))

    def epoch(self) -> None:
        episodes, steps = self.sizes.batches[0], self.sizes.steps
        samples = self.samples(episodes * steps)
        took: dict[str, tuple[float, float]] = {}

        def plain() -> None:
            model, player = copy.deepcopy(self.model), half(self.model)
            optimizer = adamw(model)
            self.plain_learn(model, optimizer, samples[: self.sizes.minibatch])  # warms up
            play = seconds(lambda: [self.plain_answer(player, episodes) for _ in range(steps)])
            learn = seconds(lambda: self.plain_learn(model, optimizer, samples))
            copied = seconds(lambda: player.load_state_dict(model.state_dict()))
            took["plain"] = (play, learn + copied)

        def ours() -> None:
            model = copy.deepcopy(self.model)
            if self.compile:
                compile_layers(model)
            engine, optimizer, size = CudaSampler(model, (), 0), adamw(model), self.sizes.minibatch
            self.answer(engine, episodes)  # captures
            self.learn(model, optimizer, samples[:size], size)
            play = seconds(lambda: [self.answer(engine, episodes) for _ in range(steps)])
            learn = seconds(lambda: self.learn(model, optimizer, samples, size))
            pushed = seconds(lambda: engine.push(MergedWeights(model), 1))
            took["ours"] = (play, learn + pushed)

        for kind, way in (("plain", plain), ("ours", ours)):
            if self.attempt(f"epoch {kind}", lambda w=way: (w(),)) is None:
                continue
            play, learn = took[kind]
            print(
                f"epoch {kind}: {episodes} episodes × {steps} steps in {play + learn:.2f} s "
                f"(playing {play:.2f} s, learning {learn:.2f} s)",
                flush=True,
            )
            self.results.add(f"epoch_{kind}", play + learn, "s")
        if len(took) == 2:
            ratio = sum(took["plain"]) / sum(took["ours"])
            print(f"epoch: ours is {ratio:.1f}× as fast", flush=True)
            self.results.add("epoch_ratio", ratio, "times")

    def profile(self) -> None:
        bandwidth, rate = self.attempt("peaks", peaks) or (float("nan"), float("nan"))
        print(f"peaks measured here: {bandwidth / 1e12:.2f} TB/s, {rate / 1e12:.1f} TFLOP/s")
        for count in self.sizes.batches:
            self.attempt(
                f"profile decode at {count}",
                lambda n=count: self.profile_decode(n, bandwidth, rate),
            )
        self.attempt("profile learn", lambda: self.profile_learn(rate))

    def profile_decode(self, count: int, bandwidth: float, rate: float) -> None:
        _, token = self.measure_engine(count, {})
        engine = CudaSampler(self.model, (), 0)
        width = engine.dtype.itemsize
        length = statistics.mean(map(len, self.prompts[:count])) + self.sizes.new / 2
        body = sum(x.numel() for layer in engine.weights.layers for x in layer if x is not None)
        cache = (
            2
            * len(engine.weights.layers)
            * engine.weights.kv
            * engine.weights.size
            * width
            * length
            * count
        )
        logits = count * len(engine.weights.head) * 16  # written and read, and the noise likewise
        moved = width * (body + engine.weights.head.numel()) + cache + logits
        attention = (
            4 * len(engine.weights.layers) * engine.weights.heads * engine.weights.size * length
        )
        work = count * (2 * (body + engine.weights.head.numel()) + attention)
        self.tell_bound(f"decode_{count}", token, moved, work, bandwidth, rate)
        self.answer(engine, count)
        kernels(lambda: self.answer(engine, count), f"a call at {count} with its prompts")
        engine.generate([[3] for _ in range(count)], 2, 1.0, torch.Generator(DEVICE))
        kernels(
            lambda: engine.generate([[3]] * count, self.sizes.new, 1.0, torch.Generator(DEVICE)),
            f"decoding alone at {count}, without a prompt to attend to",
        )

    def profile_learn(self, rate: float) -> None:
        model = copy.deepcopy(self.model)
        samples, size = self.samples(self.sizes.minibatch), self.sizes.minibatch
        optimizer = adamw(model)
        took = timed(lambda: self.learn(model, optimizer, samples, size), self.sizes.repeats)
        head = model.get_output_embeddings().weight.numel()
        tied = head == model.get_input_embeddings().weight.numel()
        body = parameters(model) - head * (1 if tied else 2)
        tokens = sum(len(s.prompt) + len(s.answer) for s in samples)
        work = 6 * body * tokens + 6 * head * self.sizes.new * len(samples)
        self.tell_bound("learn", took, None, work, float("nan"), rate)
        kernels(lambda: self.learn(model, optimizer, samples, size), "an optimiser step")

    def tell_bound(
        self,
        name: str,
        took: float,
        moved: float | None,
        work: float,
        bandwidth: float,
        rate: float,
    ) -> None:
        text = f"{name}: {1e3 * took:.2f} ms, {work / took / 1e12:.2f} TFLOP/s"
        text += f" ({100 * work / took / rate:.0f}% of the peak)"
        self.results.add(f"profile_{name}_flops", work / took / 1e12, "TFLOP/s")
        if moved is not None:
            floor = max(moved / bandwidth, work / rate)
            text += f", {moved / took / 1e12:.2f} TB/s ({100 * moved / took / bandwidth:.0f}%)"
            text += f"; the floor is {1e3 * floor:.2f} ms"
            self.results.add(f"profile_{name}_bytes", moved / took / 1e12, "TB/s")
            self.results.add(f"profile_{name}_floor", 1e3 * floor, "ms")
        print(text, flush=True)

    def shapes(self) -> None:
        for name, shape in SHAPES.items():
            if self.quick and GPU and name != "qwen2.5-1.5b":
                continue
            for lora in (True, False):
                if lora or name not in LORA_ONLY:
                    how = "lora" if lora else "full"
                    self.attempt(
                        f"{name} {how}", lambda n=name, s=shape, x=lora: self.local_step(n, s, x)
                    )

    def local_step(self, name: str, shape: tuple, lora: bool) -> None:
        """One minibatch: play it, learn from it, push the weights."""
        if GPU:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        model = built(shape, DTYPE if lora else torch.float32)
        count = parameters(model)
        if lora:
            model = adapted(model)
        rows, micro = self.sizes.minibatch, 8 if count > 5e9 else 16
        engine, optimizer = CudaSampler(model, (), 0), adamw(model)
        rng = random.Random(0)
        top = model.config.vocab_size
        prompts = [[rng.randrange(top) for _ in range(self.sizes.prompt)] for _ in range(rows)]
        generator = torch.Generator(DEVICE).manual_seed(0)

        def step() -> tuple[float, float]:
            start = now()
            said = engine.generate(prompts, self.sizes.new, 1.0, generator)
            played = now()
            parts = zip(prompts, said.tokens, said.logprobs, strict=True)
            samples = [Sample(i, 0, p, t, x, "") for i, (p, t, x) in enumerate(parts)]
            self.learn(model, optimizer, samples, micro)
            engine.push(MergedWeights(model), 1)
            return played - start, now() - played

        step()
        play, learn = min((step() for _ in range(self.sizes.repeats)), key=sum)
        tokens = rows * (self.sizes.prompt + self.sizes.new)
        memory = torch.cuda.max_memory_allocated() / 2**30 if GPU else float("nan")
        how = "lora" if lora else "full"
        print(
            f"{name} {how}: {count / 1e9:.2f}B parameters, one local step of {rows} × "
            f"({self.sizes.prompt} + {self.sizes.new}) tokens in {play + learn:.2f} s (playing "
            f"{play:.2f}, learning {learn:.2f}): {tokens / (play + learn):,.0f} tokens/s, learning "
            f"alone {tokens / learn:,.0f}; peak {memory:.1f} GiB",
            flush=True,
        )
        self.results.add(f"shape_{name}_{how}", tokens / (play + learn), "tokens/s")
        self.results.add(f"shape_{name}_{how}_time", play + learn, "s")
        if GPU:
            self.results.add(f"shape_{name}_{how}_memory", memory, "GiB")


# Models and prompts


def built(shape: tuple, dtype: torch.dtype) -> Any:
    """A model of this shape with random weights; a tiny one of the same kind without a GPU."""
    import transformers

    kind, width, layers, heads, kv, inner, vocabulary, tied = shape
    if not GPU:
        width, layers, inner, vocabulary = 16 * heads, 2, 64, 199
    config = (transformers.LlamaConfig if kind == "llama" else transformers.Qwen2Config)(
        hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=inner, vocab_size=vocabulary,
        tie_word_embeddings=tied, max_position_embeddings=4096, bos_token_id=None,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device(DEVICE):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


class Adapter(nn.Module):
    """LoRA on a linear layer: what peft does, for machines without it."""

    active_adapters = ("default",)

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        place = {"device": base.weight.device, "dtype": torch.float32}
        self.lora_A = nn.Parameter(torch.randn(LORA_RANK, base.in_features, **place) / 50)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, LORA_RANK, **place))

    @property
    def weight(self) -> torch.Tensor:
        return self.base_layer.weight

    @property
    def bias(self) -> torch.Tensor | None:
        return self.base_layer.bias

    def get_delta_weight(self, adapter: str) -> torch.Tensor:
        return self.lora_B @ self.lora_A

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + linear(linear(x, self.lora_A), self.lora_B)


def adapted(model: Any) -> Any:
    """With adapters on every linear layer of the body, which alone learn."""
    if not harness.missing("peft"):
        import peft

        config = peft.LoraConfig(
            r=LORA_RANK, lora_alpha=LORA_RANK, target_modules="all-linear", bias="none"
        )
        return peft.get_peft_model(model, config)
    print("peft is not installed: adapters of the same arithmetic stand in for it")
    model.requires_grad_(False)
    for layer in model.model.layers:
        for parent in (layer.self_attn, layer.mlp):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Linear):
                    setattr(parent, name, Adapter(child))
    return model


def household(tokenizer: Any, count: int, limit: int) -> list[list[int]]:
    """What an agent of the household is told after some random commands."""
    from fedrl.envs.household.world import Household, Settings
    from fedrl.llm.prompts.chat import Chat

    world, format, rng = (
        Household(Settings(size="dataset", train=20)),
        Chat(False),
        random.Random(0),
    )
    tasks, told = [task.id for task in world.tasks("train")], []
    while len(told) < count:
        episode, turn = world.start(rng.choice(tasks))
        notes = format.start(episode.goal, turn)
        for _ in range(rng.randrange(1, 8)):
            command = rng.choice(turn.admissible)
            turn = episode.step(command)
            format.observe(notes, command, turn)
        told.append(notes)
    return format.encode(tokenizer, told, limit)


def half(model: Any) -> Any:
    return copy.deepcopy(model).to(DTYPE).eval()


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    learning = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(learning, 1e-6, weight_decay=0.01, fused=GPU)


# Measuring


def now() -> float:
    if GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(work: Callable[[], Any]) -> float:
    start = now()
    work()
    return now() - start


def timed(work: Callable[[], Any], repeats: int) -> float:
    """The median, after a first time that compiles and captures."""
    work()
    return statistics.median(seconds(work) for _ in range(repeats))


def peaks() -> tuple[float, float]:
    """Bytes/s of a copy (read and written) and FLOP/s of a matrix product, of this machine."""
    size, side = (2**30, 8192) if GPU else (2**24, 256)
    a = torch.randn(size // 4, device=DEVICE)
    b = torch.empty_like(a)
    copied = timed(lambda: [b.copy_(a) for _ in range(10)], 3) / 10
    m = torch.randn(side, side, device=DEVICE).to(DTYPE)
    multiplied = timed(lambda: [m @ m for _ in range(10)], 3) / 10
    return 2 * size / copied, 2 * side**3 / multiplied


def kernels(work: Callable[[], Any], title: str, most: int = 12) -> None:
    """The kernels (without a GPU: the operations) that took longest."""
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA] if GPU else [kinds.CPU]) as profiler:
        wall = seconds(work)
    events = [
        (e.self_device_time_total if GPU else e.self_cpu_time_total, e.count, e.key)
        for e in profiler.key_averages()
    ]
    total = sum(event[0] for event in events) or 1.0
    print(f"\n{title}: {total / 1e3:.1f} ms in kernels, {1e3 * wall:.1f} ms by the clock")
    for took, count, name in sorted(events, reverse=True)[:most]:
        print(f"  {took / 1e3:9.2f} ms {100 * took / total:5.1f}% {count:6d}×  {name[:90]}")
    print(flush=True)


def main() -> None:
    parser = harness.options(__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--model", metavar="FOLDER", help="a model and its tokenizer")
    parser.add_argument("--compile", action="store_true", help="torch.compile for learning, too")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; choose from {', '.join(PARTS)}")
    harness.header("language agents")
    import transformers

    place = torch.cuda.get_device_name() if GPU else "no GPU: tiny shapes"
    print(f"{place}; torch {torch.__version__}, transformers {transformers.__version__}")
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    bench = Bench(asked)
    try:
        for part in asked.parts or PARTS:
            print(f"## {part}", flush=True)
            {
                "rollout": bench.rollout, "learn": bench.learn_part, "epoch": bench.epoch,
                "profile": bench.profile, "shapes": bench.shapes,
            }[part]()  # fmt: skip
    finally:  # what was measured before an interruption is kept
        bench.results.finish(asked.json)
    if bench.failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
