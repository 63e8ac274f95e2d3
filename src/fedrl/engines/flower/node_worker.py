"""The process that does a node's work: the same as long as the recipe and the policy are."""

from __future__ import annotations

from fedrl.core.types import Failure, Job, Result, UserError
from fedrl.engines.flower.node_plan import Plan
from fedrl.engines.flower.policy import Policy
from fedrl.engines.worker_pool import WorkerPool


class NodeWorker:
    """One process, kept between jobs where the plan says so."""

    def __init__(self) -> None:
        self._pool: WorkerPool | None = None
        self._built: tuple[str, Policy] | None = None  # what it was started for

    def is_for(self, plan: Plan, recipe: str) -> bool:
        return self._pool is not None and self._built == (recipe, plan.policy)

    def start(self, plan: Plan, recipe: str) -> None:
        try:
            self._staffed(plan, recipe).start()
        except UserError:  # as in `run`
            self.close()
            raise

    def run(
        self, plan: Plan, recipe: str, job: Job, deadline: float, release: bool
    ) -> Result | Failure:
        """With `release` the broadcast is emptied here once the process has it."""
        try:
            pool = self._staffed(plan, recipe)
            pool.release = release
            (result,) = pool.run([job], deadline)
            return result
        except UserError:  # it did not start: the next one may, when its owner has seen to it
            self.close()
            raise
        finally:
            if not plan.warm:
                self.close()

    def _staffed(self, plan: Plan, recipe: str) -> WorkerPool:
        if self._pool is None or not self.is_for(plan, recipe):
            self.close()
            self._pool = WorkerPool(plan.build, count=1)
            self._built = (recipe, plan.policy)
        return self._pool

    def interrupt(self) -> bool:
        """From another thread: give up the job under way, if any."""
        return (pool := self._pool) is not None and pool.interrupt()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
