"""A policy as an ONNX graph: observations [batch, n] in, its outputs and the greedy action out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrl.core.policies import FourierPolicy, NetworkPolicy, TablePolicy, TensorPolicy

if TYPE_CHECKING:
    import onnx

OPSET = 17
IR = 9
"""Versions that runtimes of the last years read."""
MISSING = 'the package onnx is not installed: pip install "fedrl[onnx]"'


def write_onnx(policy: TensorPolicy, path: Path) -> str:
    """Write the model; without the package, a line that says so."""
    try:
        import onnx
    except ModuleNotFoundError:
        return MISSING
    onnx.save(model(policy), str(path))
    return ""


def model(policy: TensorPolicy) -> onnx.ModelProto:
    """The graph, checked by ONNX itself."""
    import onnx
    from onnx import TensorProto, helper

    graph = _Graph()
    if isinstance(policy, TablePolicy):
        wanted = helper.make_tensor_value_info("observation", TensorProto.INT64, ["batch"])
        table = graph.constant("table", policy.table.astype(np.float32))
        last = graph.add("Gather", table, "observation")
    else:
        size = _size(policy)
        wanted = helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", size])
        last = _scores(graph, policy, "observation")
    graph.add("Identity", last, out=policy.output)
    shape: list[str | int | None]
    if policy.output == "mean":
        kind, shape = TensorProto.FLOAT, ["batch", policy.actions]
        _continuous(graph, policy, last)
    else:
        kind, shape = TensorProto.INT64, ["batch"]
        graph.add("ArgMax", last, out="action", axis=1, keepdims=0)
    told = [
        helper.make_tensor_value_info("action", kind, shape),
        helper.make_tensor_value_info(policy.output, TensorProto.FLOAT, ["batch", policy.actions]),
    ]
    whole = helper.make_graph(graph.nodes, "policy", [wanted], told, graph.constants)
    made = helper.make_model(
        whole, producer_name="fedrl", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR
    )
    onnx.checker.check_model(made)
    return made


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: np.ndarray) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(self, operation: str, *inputs: str, out: str = "", **attributes: int) -> str:
        from onnx import helper

        name = out or f"{operation.lower()}{len(self.nodes)}"
        node = helper.make_node(operation, list(inputs), [name])
        node.attribute.extend(
            helper.make_attribute(key, value) for key, value in attributes.items()
        )
        self.nodes.append(node)
        return name


def _size(policy: TensorPolicy) -> int:
    """Numbers of an observation."""
    return int(policy.description()["sizes"][0])


def _scores(graph: _Graph, policy: TensorPolicy, x: str) -> str:
    tensors = {name: value.astype(np.float32) for name, value in policy.tensors().items()}
    if "shift" in tensors:
        x = graph.add("Sub", x, graph.constant("shift", tensors["shift"]))
        x = graph.add("Div", x, graph.constant("scale", tensors["scale"]))
    if isinstance(policy, FourierPolicy):
        x = graph.add("MatMul", x, graph.constant("omega", tensors["omega"]))
        turns = graph.add("Add", x, graph.constant("phase", tensors["phase"]))
        within = graph.add("Sub", turns, graph.add("Round", turns))  # a float's cosine, near 0
        turn = graph.constant("turn", np.array(2 * np.pi, np.float32))
        waves = graph.add("Cos", graph.add("Mul", within, turn))
        rows = tensors["rows"].T * np.float32(policy.scale)
        return graph.add("MatMul", waves, graph.constant("rows", rows))
    assert isinstance(policy, NetworkPolicy)
    activation = {"tanh": "Tanh", "relu": "Relu"}[policy.activation]
    for number in range(len(policy.layers)):
        x = graph.add("MatMul", x, graph.constant(f"w{number}", tensors[f"w{number}"]))
        x = graph.add("Add", x, graph.constant(f"b{number}", tensors[f"b{number}"]))
        x = graph.add(activation, x) if number < len(policy.layers) - 1 else x
    return x


def _continuous(graph: _Graph, policy: TensorPolicy, x: str) -> None:
    if policy.box is not None:
        parts = {
            name: graph.constant(f"action_{name}", getattr(policy.box, name).astype(np.float32))
            for name in ("middle", "reach", "low", "high")
        }
        x = graph.add("Add", graph.add("Mul", x, parts["reach"]), parts["middle"])
        x = graph.add("Min", graph.add("Max", x, parts["low"]), parts["high"])
    graph.add("Identity", x, out="action")
