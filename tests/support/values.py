"""An algorithm whose clients send parameters instead of changes."""

from __future__ import annotations

from dataclasses import replace

from fedrl.core.types import Spec
from support.toy import Toy


class Values(Toy):
    """Clients send the new value of what was broadcast, at the same nested names."""

    sends_parameters = True

    def declare(self, broadcast):
        return {"theta/a": Spec((self.size,), "float64"), "theta/b": Spec((2, 2), "float32")}

    def local(self, job):
        result = super().local(job)
        here = {k: job.broadcast["theta"][k] + result.update[k] for k in result.update}
        return replace(result, update={"theta": here})

    def step(self, state, mean, round):
        return state | {"theta": mean["theta"]}
