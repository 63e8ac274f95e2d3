"""Rooms: what furniture stands in them, what lies about, and what may be put where.

Types, what each allows and the relation `fits` (canContain) are those of the ALFWorld domain, so
that a generated problem is one of the same kind. How many of what a room has and where a thing
plausibly lies are tables of our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

SIZES = ("tiny", "small", "medium", "dataset")

FITS = {
    "ArmChair": "Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow "
    "RemoteControl",
    "BathtubBasin": "Cloth DishSponge HandTowel SoapBar",
    "Bed": "BaseballBat BasketBall Book CellPhone Laptop Pillow TennisRacket",
    "Cabinet": "Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle "
    "Mug Newspaper Pan PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle "
    "TissueBox ToiletPaper Vase WateringCan WineBottle",
    "Cart": "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox "
    "ToiletPaper",
    "CoffeeMachine": "Mug",
    "CoffeeTable": "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen "
    "Pencil Plate RemoteControl Statue TissueBox Vase Watch WateringCan",
    "CounterTop": "AlarmClock Apple Book Bowl Bread ButterKnife CD Candle CellPhone Cloth "
    "CreditCard Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop "
    "Lettuce Mug Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar "
    "SoapBottle Spatula Spoon SprayBottle Statue TissueBox ToiletPaper Tomato Vase WineBottle",
    "Desk": "AlarmClock BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop "
    "Mug Pen Pencil RemoteControl Statue TennisRacket TissueBox Vase Watch WateringCan",
    "DiningTable": "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD "
    "Candle CellPhone Cloth CreditCard Cup DishSponge Egg Fork Glassbottle Kettle KeyChain Knife "
    "Ladle Laptop Lettuce Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato "
    "RemoteControl SaltShaker SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox "
    "Tomato Vase Watch WateringCan WineBottle",
    "Drawer": "Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel "
    "KeyChain Knife Ladle Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar "
    "SoapBottle Spatula Spoon SprayBottle TissueBox ToiletPaper Watch WateringCan",
    "Dresser": "AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard "
    "KeyChain Laptop Mug Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue "
    "TennisRacket TissueBox ToiletPaper Vase Watch WateringCan",
    "Fridge": "Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato "
    "WineBottle",
    "GarbageCan": "Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper Pen Pencil "
    "Potato SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Tomato WineBottle",
    "HandTowelHolder": "HandTowel",
    "LaundryHamper": "Cloth",
    "Microwave": "Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato",
    "Ottoman": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "Safe": "CD CellPhone CreditCard KeyChain Statue Vase Watch",
    "Shelf": "AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge "
    "Glassbottle HandTowel Kettle KeyChain Mug Newspaper Pen Pencil PepperShaker Plate Pot "
    "RemoteControl SaltShaker SoapBar SoapBottle SprayBottle Statue TissueBox ToiletPaper Vase "
    "Watch WateringCan WineBottle",
    "SideTable": "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD "
    "Candle CellPhone Cloth CreditCard Cup DishSponge Egg Fork HandTowel Kettle KeyChain Knife "
    "Laptop Lettuce Mug Newspaper Pan Pen Pencil PepperShaker Plate Pot Potato RemoteControl "
    "SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox "
    "ToiletPaper Tomato Vase Watch WateringCan WineBottle",
    "SinkBasin": "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel "
    "Kettle Knife Ladle Lettuce Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato",
    "Sofa": "Book Box CellPhone CreditCard KeyChain Laptop Newspaper Pillow RemoteControl",
    "StoveBurner": "Kettle Pan Pot",
    "TVStand": "TissueBox",
    "Toilet": "Candle Cloth DishSponge HandTowel SoapBar SoapBottle SprayBottle TissueBox "
    "ToiletPaper",
    "ToiletPaperHanger": "ToiletPaper",
    "TowelHolder": "Towel",
}
"""Object types that a receptacle type can contain; a Toaster contains none."""

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})
STUCK = frozenset({"Cabinet", "Drawer"})
"""Openable types of which the dataset has some without a door that moves."""

ABLE = {
    "cleanable": "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce "
    "Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato",
    "heatable": "Apple Bread Cup Egg Mug Plate Potato Tomato",
    "coolable": "Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle",
    "sliceable": "Apple Bread Egg Lettuce Potato Tomato",
    "toggleable": "DeskLamp FloorLamp",
    "isReceptacleObject": "Bowl Box Cup Mug Pan Plate Pot",
}
"""Object types that have each flag. Whatever can be carried is `pickupable`: see `flags`."""

HEIGHTS = {
    **dict.fromkeys("Cabinet Shelf Microwave".split(), 150),
    **dict.fromkeys("CounterTop StoveBurner SinkBasin CoffeeMachine Toaster".split(), 90),
    **dict.fromkeys("DiningTable Desk Dresser Drawer SideTable TowelHolder Cart Safe".split(), 70),
    **dict.fromkeys("HandTowelHolder ToiletPaperHanger".split(), 110),
}
"""Of receptacle types above the floor, in cm; those not named stand on it at 40."""


class Bounds(NamedTuple):
    receptacles: tuple[int, int]
    objects: tuple[int, int]
    types: int  # only the first so many of a room's thing types occur
    copies: int  # most things of one type, one more when two are to be found


BOUNDS = {
    "tiny": Bounds((6, 8), (4, 6), 10, 1),
    "small": Bounds((9, 12), (8, 12), 14, 2),
    "medium": Bounds((14, 20), (15, 24), 20, 2),
    "dataset": Bounds((10, 24), (14, 28), 40, 3),
}


@dataclass(frozen=True)
class Room:
    """One kind of room.

    `furniture` gives, for each size, "Type=low..high" (or "Type=n"): the first ones named are
    always there. `things` are the types that can be carried, the most common first, each with the
    receptacle types where it lies, the likely ones repeated. `fixtures` only fill the dataset size.
    """

    name: str
    furniture: dict[str, str]
    things: dict[str, str]
    fixtures: str
    lamps: str = ""
    kinds: tuple[str, ...] = ()  # of tasks that can be set here

    def receptacles(self, size: str) -> tuple[int, int]:
        """Fewest and most receptacles of a scene."""
        return (25, 40) if (self.name, size) == ("kitchen", "dataset") else BOUNDS[size].receptacles

    def objects(self, size: str) -> tuple[int, int]:
        """Fewest and most things of a problem, lamps included and fixtures not."""
        return (30, 50) if (self.name, size) == ("kitchen", "dataset") else BOUNDS[size].objects


KITCHEN = Room(
    "kitchen",
    {
        "tiny": "Fridge=1 Microwave=1 SinkBasin=1 CounterTop=1..2 Cabinet=0..2 DiningTable=0..1 "
        "Drawer=0..2 StoveBurner=0..1 GarbageCan=0..1 Shelf=0..1",
        "small": "Fridge=1 Microwave=1 SinkBasin=1 CounterTop=1..2 Cabinet=1..4 Drawer=1..3 "
        "DiningTable=0..1 StoveBurner=0..2 GarbageCan=1 CoffeeMachine=0..1 Shelf=0..2 "
        "Toaster=0..1",
        "medium": "Fridge=1 Microwave=1 SinkBasin=1 CounterTop=1..3 Cabinet=3..7 Drawer=2..5 "
        "DiningTable=0..1 StoveBurner=2..4 GarbageCan=1 CoffeeMachine=1 Toaster=1 Shelf=0..3 "
        "SideTable=0..1",
        "dataset": "Fridge=1 Microwave=1 SinkBasin=1 CounterTop=1..4 Cabinet=6..16 Drawer=3..10 "
        "StoveBurner=4 GarbageCan=1 CoffeeMachine=1 Toaster=1 DiningTable=0..2 Shelf=0..3 "
        "SideTable=0..1",
    },
    {
        "Mug": "CounterTop CounterTop CoffeeMachine CoffeeMachine Cabinet Shelf SinkBasin "
        "DiningTable",
        "Apple": "CounterTop CounterTop Fridge Fridge DiningTable GarbageCan SinkBasin SideTable",
        "Plate": "Cabinet Cabinet CounterTop DiningTable Shelf SinkBasin Microwave",
        "Tomato": "Fridge Fridge CounterTop DiningTable SinkBasin GarbageCan",
        "Cup": "Cabinet Cabinet CounterTop Fridge SinkBasin Shelf Microwave SideTable",
        "Egg": "Fridge Fridge Fridge CounterTop SinkBasin Microwave GarbageCan",
        "Bowl": "Cabinet Cabinet CounterTop DiningTable Fridge Shelf SinkBasin",
        "Fork": "Drawer Drawer CounterTop DiningTable SinkBasin SideTable",
        "Potato": "CounterTop CounterTop Fridge SinkBasin GarbageCan Microwave",
        "Knife": "Drawer Drawer CounterTop CounterTop DiningTable SinkBasin",
        "SaltShaker": "CounterTop CounterTop Cabinet Drawer DiningTable Shelf SideTable",
        "Pan": "StoveBurner StoveBurner StoveBurner CounterTop Cabinet Fridge DiningTable",
        "Lettuce": "Fridge Fridge CounterTop SinkBasin DiningTable",
        "Bread": "CounterTop CounterTop DiningTable Fridge SideTable Microwave",
        "Spoon": "Drawer Drawer Drawer CounterTop DiningTable SinkBasin",
        "Pot": "StoveBurner StoveBurner StoveBurner CounterTop Cabinet SinkBasin Fridge",
        "PepperShaker": "Cabinet CounterTop CounterTop Drawer DiningTable Shelf",
        "DishSponge": "SinkBasin SinkBasin CounterTop Cabinet Drawer GarbageCan",
        "Spatula": "Drawer Drawer CounterTop CounterTop SinkBasin DiningTable",
        "SoapBottle": "CounterTop CounterTop Cabinet GarbageCan Shelf SideTable",
        "ButterKnife": "CounterTop Drawer Drawer DiningTable SinkBasin",
        "Kettle": "StoveBurner StoveBurner CounterTop Cabinet Shelf DiningTable",
        "WineBottle": "CounterTop Cabinet Fridge DiningTable GarbageCan Shelf",
        "Ladle": "Drawer CounterTop Cabinet DiningTable SinkBasin",
        "Glassbottle": "Cabinet CounterTop Fridge DiningTable SinkBasin Shelf",
        "Vase": "Shelf Cabinet CounterTop DiningTable",
        "Statue": "Shelf CounterTop DiningTable SideTable",
        "CreditCard": "CounterTop Drawer Shelf",
        "CellPhone": "CounterTop Drawer DiningTable",
        "Book": "CounterTop Cabinet DiningTable",
    },
    "Chair Chair Window LightSwitch StoveKnob StoveKnob StoveKnob StoveKnob",
    kinds=("pick", "clean", "heat", "cool", "pick_two"),
)

BEDROOM = Room(
    "bedroom",
    {
        "tiny": "Bed=1 Desk=1 Drawer=0..3 SideTable=0..2 Dresser=0..1 Shelf=0..2 GarbageCan=0..1 "
        "Safe=0..1 ArmChair=0..1",
        "small": "Bed=1 Desk=1 Drawer=2..4 SideTable=0..2 Dresser=0..1 Shelf=1..3 GarbageCan=1 "
        "Safe=0..1 ArmChair=0..1 LaundryHamper=0..1",
        "medium": "Bed=1..2 Desk=1..2 Drawer=4..8 SideTable=1..2 Dresser=0..1 Shelf=2..5 "
        "GarbageCan=1 Safe=0..1 ArmChair=0..2 LaundryHamper=0..1",
        "dataset": "Bed=1..2 Desk=1..2 Drawer=2..9 SideTable=0..2 Dresser=0..2 Shelf=0..6 "
        "GarbageCan=1 Safe=0..1 ArmChair=0..2 LaundryHamper=0..1 Cabinet=0..3 DiningTable=0..1",
    },
    {
        "Book": "Bed Bed Desk Shelf Drawer SideTable Dresser ArmChair Cabinet",
        "CellPhone": "Bed Bed Desk Drawer SideTable Dresser Safe Shelf",
        "AlarmClock": "SideTable SideTable Desk Desk Dresser Shelf DiningTable",
        "Pencil": "Desk Desk Desk Drawer Shelf SideTable GarbageCan",
        "KeyChain": "Drawer Drawer SideTable Desk Dresser Safe ArmChair Shelf",
        "CD": "Drawer Desk Shelf SideTable Dresser Safe GarbageCan Cabinet",
        "Pillow": "Bed Bed Bed Bed ArmChair",
        "Laptop": "Bed Bed Desk Desk Dresser ArmChair",
        "CreditCard": "Desk Drawer Drawer Dresser SideTable Safe Shelf ArmChair",
        "Pen": "Desk Desk Drawer Dresser Shelf SideTable GarbageCan",
        "Mug": "Desk Desk SideTable Shelf Dresser DiningTable",
        "Bowl": "Desk Shelf Dresser SideTable DiningTable",
        "TissueBox": "SideTable Desk Drawer Shelf Dresser",
        "Watch": "Drawer Desk SideTable Safe Dresser Shelf",
        "Vase": "Shelf Shelf Dresser Desk SideTable",
        "Statue": "Shelf Shelf Dresser Desk",
        "RemoteControl": "Desk Drawer SideTable ArmChair Dresser",
        "Box": "Desk Dresser Shelf Cabinet",
        "BasketBall": "Bed Desk Dresser",
        "TennisRacket": "Bed Desk SideTable",
        "BaseballBat": "Bed Bed SideTable",
        "Cloth": "LaundryHamper LaundryHamper Desk Drawer Dresser",
    },
    "Window Mirror LightSwitch Chair Blinds Painting",
    lamps="Desk Desk SideTable SideTable Dresser Shelf",
    kinds=("pick", "look", "pick_two"),
)

BATHROOM = Room(
    "bathroom",
    {
        "tiny": "SinkBasin=1 Toilet=1 CounterTop=0..1 Cabinet=0..3 GarbageCan=0..1 "
        "BathtubBasin=0..1 Drawer=0..2 Shelf=0..2 ToiletPaperHanger=0..1 Cart=0..1",
        "small": "SinkBasin=1 Toilet=1 CounterTop=1 Cabinet=1..4 GarbageCan=1 BathtubBasin=0..1 "
        "Drawer=0..3 Shelf=0..2 ToiletPaperHanger=1 Cart=0..1 HandTowelHolder=0..1 "
        "TowelHolder=0..1",
        "medium": "SinkBasin=1..2 Toilet=1 CounterTop=1..2 Cabinet=2..5 GarbageCan=1 "
        "BathtubBasin=0..1 Drawer=1..5 Shelf=0..3 ToiletPaperHanger=1 Cart=0..1 "
        "HandTowelHolder=1..2 TowelHolder=1 SideTable=0..1",
        "dataset": "SinkBasin=1..2 Toilet=1 CounterTop=0..2 Cabinet=0..5 GarbageCan=1 "
        "BathtubBasin=0..1 Drawer=0..6 Shelf=0..3 ToiletPaperHanger=1 Cart=0..1 "
        "HandTowelHolder=1..2 TowelHolder=1..2 SideTable=0..1 Dresser=0..1",
    },
    {
        "SoapBar": "SinkBasin CounterTop CounterTop Cabinet BathtubBasin Toilet Shelf Drawer Cart",
        "Cloth": "BathtubBasin Cabinet Drawer CounterTop SinkBasin Shelf Cart",
        "ToiletPaper": "Toilet Toilet ToiletPaperHanger Cabinet CounterTop Shelf Drawer",
        "SprayBottle": "Cabinet CounterTop Toilet GarbageCan Shelf Cart Dresser",
        "Candle": "CounterTop Toilet Toilet Shelf Cabinet Drawer SideTable",
        "SoapBottle": "CounterTop Cabinet Cabinet Toilet Shelf GarbageCan SideTable",
        "DishSponge": "SinkBasin BathtubBasin Cabinet CounterTop Drawer Cart",
        "HandTowel": "HandTowelHolder HandTowelHolder HandTowelHolder CounterTop Cabinet Shelf",
        "TissueBox": "CounterTop Toilet Shelf Drawer Cabinet SideTable",
        "Towel": "TowelHolder",
    },
    "Mirror LightSwitch Faucet Window ShowerDoor",
    kinds=("pick", "clean", "pick_two"),
)

LIVINGROOM = Room(
    "livingroom",
    {
        "tiny": "Sofa=1 SideTable=1 CoffeeTable=0..1 ArmChair=0..2 Drawer=0..2 Shelf=0..2 "
        "DiningTable=0..1 Dresser=0..1 GarbageCan=0..1 Cabinet=0..1",
        "small": "Sofa=1 SideTable=1..2 CoffeeTable=0..1 ArmChair=1..2 Drawer=1..3 Shelf=0..3 "
        "DiningTable=0..1 Dresser=0..1 GarbageCan=1 Cabinet=0..2 TVStand=0..1 Ottoman=0..1",
        "medium": "Sofa=1..2 SideTable=1..3 CoffeeTable=0..1 ArmChair=1..2 Drawer=2..6 "
        "Shelf=0..5 DiningTable=0..1 Dresser=0..1 GarbageCan=1 Cabinet=0..4 TVStand=0..1 "
        "Ottoman=0..1 Safe=0..1",
        "dataset": "Sofa=1..2 SideTable=1..3 CoffeeTable=0..2 ArmChair=0..2 Drawer=0..8 "
        "Shelf=0..6 DiningTable=0..1 Dresser=0..1 GarbageCan=1 Cabinet=0..4 TVStand=0..1 "
        "Ottoman=0..1 Safe=0..1",
    },
    {
        "RemoteControl": "Sofa Sofa CoffeeTable CoffeeTable ArmChair SideTable Drawer Dresser",
        "KeyChain": "SideTable CoffeeTable Drawer Drawer Sofa ArmChair Dresser Safe",
        "Newspaper": "Sofa CoffeeTable DiningTable ArmChair SideTable Shelf Drawer GarbageCan",
        "Book": "Sofa CoffeeTable Shelf ArmChair SideTable DiningTable Drawer Cabinet",
        "CreditCard": "SideTable Sofa Drawer ArmChair CoffeeTable DiningTable Dresser",
        "Pillow": "Sofa Sofa Sofa ArmChair Ottoman",
        "Laptop": "DiningTable Sofa CoffeeTable ArmChair Dresser SideTable Ottoman",
        "Statue": "Shelf Shelf SideTable CoffeeTable DiningTable Dresser",
        "Box": "Sofa DiningTable CoffeeTable Cabinet Shelf ArmChair",
        "Watch": "Drawer CoffeeTable SideTable Dresser DiningTable Safe Shelf",
        "Vase": "Shelf Shelf CoffeeTable SideTable DiningTable Cabinet Dresser",
        "TissueBox": "CoffeeTable SideTable DiningTable Shelf TVStand Cabinet",
        "CellPhone": "Sofa CoffeeTable SideTable Drawer Dresser ArmChair",
        "Plate": "DiningTable DiningTable CoffeeTable Shelf SideTable",
        "Candle": "SideTable CoffeeTable DiningTable Drawer",
        "Bowl": "DiningTable CoffeeTable Shelf SideTable",
        "WateringCan": "Shelf SideTable CoffeeTable Drawer",
        "Pen": "SideTable CoffeeTable Drawer Dresser GarbageCan",
        "Pencil": "SideTable CoffeeTable Drawer Shelf GarbageCan",
    },
    "Television Window Painting LightSwitch HousePlant FloorLamp",
    lamps="SideTable SideTable SideTable CoffeeTable Dresser",
    kinds=("pick", "look", "pick_two"),
)

ROOMS = (KITCHEN, BEDROOM, BATHROOM, LIVINGROOM)

FITTING = MappingProxyType({rtype: frozenset(words.split()) for rtype, words in FITS.items()})


@cache
def flags(otype: str) -> frozenset[str]:
    """What can be done with an object type; lamps and the fixtures of a house cannot be carried."""
    able = {flag for flag, types in ABLE.items() if otype in types.split()}
    if any(otype in room.things for room in ROOMS):
        able.add("pickupable")
    return frozenset(able)


@cache
def can_contain(receptacles: frozenset[str], things: frozenset[str]) -> frozenset[tuple[str, str]]:
    """The pairs of types that a problem states: those that occur in it."""
    return frozenset((r, t) for r in receptacles for t in FITTING.get(r, frozenset()) & things)
