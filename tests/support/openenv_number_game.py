"""The stand-in's game as an environment of the real OpenEnv: a number from 1 to 7."""

from uuid import uuid4

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.types import EnvironmentMetadata

NUMBERS, GUESSES = 7, 3


class Guess(Action):
    guess: int


class Answer(Observation):
    message: str


class HigherLower(Environment[Guess, Answer, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.secret = self.low = 1
        self.high = NUMBERS
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Answer:
        self.low, self.high, self.secret = 1, NUMBERS, (seed or 0) % NUMBERS + 1
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
        description = f"Find a number from 1 to {NUMBERS} in three guesses."
        return EnvironmentMetadata(name="higher_lower", description=description)


app = create_fastapi_app(HigherLower, Guess, Answer, max_concurrent_envs=512)
