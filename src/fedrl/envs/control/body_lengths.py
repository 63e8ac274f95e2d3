"""MuJoCo's models with longer or shorter limbs: how clients' bodies differ."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree


def stretched(xml: str, length: float) -> ElementTree.Element:
    """Gymnasium's model with its body and limbs `length` times as long, no thicker."""
    root = ElementTree.fromstring(xml)
    for body in root.iterfind("worldbody/body"):
        _stretch(body, length)
    return root


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
