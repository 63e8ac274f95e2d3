"""Which tasks each client holds: the heterogeneity of FedAgentGym (FedAgent, Algorithms 2 to 4).

`partition` is a pure function of (tasks, clients, settings, seed) to one list of task ids per
client. It knows a task's id, category and scene, never its content, sorts the tasks first and draws
from generators that are derived from (seed, client): neither the order of files nor the process
matters, and the first clients of many are the same as of few where the algorithm allows it
(uniform, preference). `measure` says how unlike the clients became.

    uniform      size tasks, any                                        nothing differs
    preference   a mix of categories of the client's own (omega)        category shares
    coverage     many tasks or few (xi), every task in as many clients  sizes
    hardness     many successful tasks or few (xi), size in all         success rates
    scenes       scenes that no other client has (divergence)           environments

`strategy = "own"` deals nothing: a client holds what its folder holds (`own_folders`).
"""

from fedrl.partition.labels import draw_labels, load_labels, read_labels, write_labels
from fedrl.partition.measures import Measures, measure
from fedrl.partition.own_folders import OwnFolders, client_folders
from fedrl.partition.settings import Settings, TaskLike
from fedrl.partition.strategies import partition

__all__ = [
    "Measures",
    "OwnFolders",
    "Settings",
    "TaskLike",
    "client_folders",
    "draw_labels",
    "load_labels",
    "measure",
    "partition",
    "read_labels",
    "write_labels",
]
