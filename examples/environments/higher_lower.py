"""An environment written with OpenEnv: find a number by higher and lower, in three guesses.

    pip install openenv-core
    uvicorn higher_lower:app --port 8000          # in this folder
    fedrl run higher_lower.toml                   # or serve = "./higher_lower.py:app" in the recipe

It lies among seven of the numbers from 1 to 20, which the first message tells: 98 games, by the
seed of `reset`. Who halves what is left always wins; guesses at random among what is left win two
games of three, among all numbers one of seven.
"""

from uuid import uuid4

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.types import EnvironmentMetadata

NUMBERS, GUESSES = 20, 3
WIDTH = 2**GUESSES - 1
LOWEST = range(1, NUMBERS - WIDTH + 2)
GAMES = [(low, secret) for low in LOWEST for secret in range(low, low + WIDTH)]


class Guess(Action):
    guess: int


class Answer(Observation):
    message: str


class HigherLower(Environment[Guess, Answer, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high, self.secret = 1, WIDTH, 1
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Answer:
        self.low, self.secret = GAMES[(seed or 0) % len(GAMES)]
        self.high = self.low + WIDTH - 1
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return self._answer(None, False)

    def step(self, action: Guess, timeout_s: float | None = None) -> Answer:
        if not 1 <= action.guess <= NUMBERS:
            raise ValueError(f"guess a number from 1 to {NUMBERS}")
        self._state.step_count += 1
        found = action.guess == self.secret
        if action.guess < self.secret:
            self.low = max(self.low, action.guess + 1)
        if action.guess > self.secret:
            self.high = min(self.high, action.guess - 1)
        return self._answer(float(found), found or self._state.step_count >= GUESSES)

    def _answer(self, reward: float | None, done: bool) -> Answer:
        message = f"It lies between {self.low} and {self.high}."
        return Answer(message=message, reward=reward, done=done)

    @property
    def state(self) -> State:
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        description = "Find the number in three guesses."
        return EnvironmentMetadata(name="higher_lower", description=description)


app = create_fastapi_app(HigherLower, Guess, Answer, max_concurrent_envs=512)
