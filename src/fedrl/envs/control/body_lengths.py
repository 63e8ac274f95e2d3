"""MuJoCo's models with longer or shorter limbs, and under another gravity: how clients differ."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree


def stretched(xml: str, length: float) -> ElementTree.Element:
    """Gymnasium's model with its body and limbs `length` times as long, no thicker."""
    root = ElementTree.fromstring(xml)
    for body in root.iterfind("worldbody/body"):
        _stretch(body, length)
    return root


EARTH = "0 0 -9.81"
"""MuJoCo's gravity where a model says nothing."""


def heavier(root: ElementTree.Element, gravity: float) -> None:
    """The model under `gravity` times its own pull; with 1 it stays as it was."""
    if gravity == 1.0:
        return
    option = root.find("option")
    if option is None:
        option = ElementTree.SubElement(root, "option")
    option.set("gravity", _scaled(option.get("gravity", EARTH), gravity))


def _stretch(body: ElementTree.Element, length: float) -> None:
    """Scale where every part sits, how long its capsules are, and the height that z counts from."""
    for part in body.iter():
        if part.tag not in ("body", "joint", "geom"):
            continue
        for key in ("pos", "fromto"):
            if key in part.attrib:
                part.set(key, _scaled(part.attrib[key], length))
        if part.tag == "geom":
            radius, *half = part.attrib["size"].split()
            part.set("size", " ".join([radius, *(_scaled(value, length) for value in half)]))
        if part.get("type") == "slide" and "ref" in part.attrib:
            part.set("ref", _scaled(part.attrib["ref"], length))


def _scaled(numbers: str, factor: float) -> str:
    return " ".join(repr(float(number) * float(factor)) for number in numbers.split())
