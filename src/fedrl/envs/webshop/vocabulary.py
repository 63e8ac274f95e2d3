"""Words of the generated catalogue: kinds of products, what is said of them, and their options.

A kind is one line: name | search that finds it | aisle of the department | price range |
options and the pool of each | what it is made with | what it is for | what it is like
(beside the department's words, or only this).
"""

# ruff: noqa: E501 (the tables are read and changed a line at a time)

from __future__ import annotations

from typing import NamedTuple


class Kind(NamedTuple):
    department: str
    noun: str  # "garden trowel"
    query: str  # "hand tools": what one would look for
    path: str
    low: float
    high: float
    options: tuple[tuple[str, tuple[str, ...]], ...]  # a name and the values to choose from
    features: tuple[str, ...]  # follow "with"
    purposes: tuple[str, ...]  # follow "for"
    qualities: tuple[str, ...]  # stand before the noun


POOLS = {
    "colour": "black, white, navy, charcoal gray, olive green, dusty pink, burgundy, sky blue, "
    "mustard yellow, cream, dark teal, lavender, rust orange, chocolate brown, scarlet red",
    "finish": "matte black, brushed nickel, antique brass, polished chrome, oil rubbed bronze, "
    "satin gold, aged copper",
    "wood": "light oak, dark walnut, rustic gray, honey maple, weathered white, espresso, cherry",
    "shade": "01 porcelain, 02 ivory, 03 warm sand, 04 honey, 05 amber, 06 chestnut, 07 cocoa, "
    "08 deep mahogany",
    "lip": "berry crush, coral kiss, soft rose, brick red, plum night, peach nude, cherry pop",
    "hair": "jet black, dark brown, medium chestnut, honey blonde, platinum, copper red, ash brown",
    "scent": "lavender, fresh linen, sweet orange, eucalyptus mint, vanilla bean, sandalwood, "
    "rose garden, unscented",
    "volume": "1 fl oz, 2 fl oz, 4 fl oz, 8 fl oz, 12 fl oz, 16 fl oz (pack of 2)",
    "count": "single, pack of 2, pack of 3, pack of 5, pack of 10",
    "letters": "x-small, small, medium, large, x-large, xx-large, 3x-large",
    "shoes": "6, 6.5, 7, 7.5, 8, 8.5, 9, 9.5, 10, 11, 12",
    "waist": "30w x 30l, 32w x 30l, 32w x 32l, 34w x 32l, 36w x 32l, 38w x 34l",
    "fit": "regular, slim, relaxed, tall, petite",
    "cable": "1.5 feet, 3 feet, 6 feet, 10 feet, 15 feet, 25 feet",
    "screen": "13 inch, 15.6 inch, 24 inch, 27 inch, 32 inch, 43 inch, 55 inch",
    "memory": "32 gb, 64 gb, 128 gb, 256 gb, 512 gb, 1 tb",
    "phone": "compact model, standard model, plus model, pro model, pro max model",
    "bundle": "device only, with carrying case, with wall charger, with spare battery",
    "rug": "2 x 3 feet, 3 x 5 feet, 4 x 6 feet, 5 x 8 feet, 8 x 10 feet",
    "curtain": "42 x 63 inches, 52 x 84 inches, 52 x 96 inches, 60 x 108 inches",
    "furniture": "24 inch wide, 30 inch wide, 36 inch wide, 48 inch wide, 60 inch wide",
    "pillow": "16 x 16 inches, 18 x 18 inches, 20 x 20 inches, 12 x 20 inches",
    "bed": "twin, full, queen, king, california king",
    "pattern": "plain, striped, botanical leaves, geometric, terrazzo, sunflowers",
    "weight": "4 ounce, 8 ounce, 12 ounce, 1 pound, 2 pound, 5 pound",
    "multipack": "6 ounce (pack of 1), 6 ounce (pack of 4), 12 ounce (pack of 2), "
    "12 ounce (pack of 6), 2 pound (pack of 1)",
    "snack": "sea salt, smoky barbecue, chili lime, cracked pepper, garlic herb, honey mustard",
    "sweet": "dark chocolate, salted caramel, peanut butter, wild blueberry, vanilla, cinnamon",
    "drink": "peach, lemon ginger, mixed berry, hibiscus, green apple, mango, original",
    "roast": "light roast, medium roast, dark roast, decaf, hazelnut, french vanilla",
    "spice": "mild, medium, hot, extra hot, smoked",
}

DEPARTMENT_NAMES = {
    "beauty": "Beauty and Care",
    "electronics": "Electronic Devices",
    "fashion": "Fashion",
    "garden": "House and Garden",
    "grocery": "Food and Drink",
}

QUALITIES = {
    "beauty": "cruelty free, paraben free, long lasting, fragrance free, easy apply, travel size, "
    "dermatologist tested, sulfate free, plant based",
    "electronics": "high speed, easy install, long lasting, plug play, ultra thin, heavy duty, low power, shock proof",
    "fashion": "machine washable, moisture wicking, quick drying, light weight, hand wash, "
    "wrinkle free, super soft, true to size, fade resistant",
    "garden": "easy assemble, easy clean, eco friendly, space saving, heavy duty, water resistant, "
    "ready use, mid century, hand made",
    "grocery": "gluten free, non gmo, low sodium, keto friendly, dairy free, individually wrapped, "
    "low sugar, kosher certified, fat free",
}

_BEAUTY = """
face serum | face serums | Face | 8-65 | size volume, scent scent | hyaluronic acid, vitamin c, green tea, niacinamide | dry skin, fine lines, dark spots | oil free, fast absorbing
night cream | moisturizing creams | Face | 9-70 | size volume, scent scent | shea butter, retinol, coconut oil, ceramides | mature skin, dry skin, dull skin | non greasy, deep hydrating
clay face mask | face masks | Face | 6-40 | size volume, style count | kaolin clay, charcoal powder, aloe vera, tea tree | oily skin, large pores, acne prone skin | rinse off, gentle
lip balm | lip balms | Face | 3-18 | color lip, size count | bee wax, cocoa butter, jojoba oil, mango butter | chapped lips, cold weather, daily use | tinted, sugar free
matte lipstick | lipsticks | Color Cosmetics | 5-32 | color lip, size count | vitamin e, argan oil, rose extract | evening wear, daily use, sensitive lips | smudge proof, water proof, highly pigmented
liquid foundation | foundations | Color Cosmetics | 8-48 | color shade, size volume | broad spectrum filter, aloe vera, peptide blend | combination skin, oily skin, full coverage | oil free, buildable, water proof
eyeshadow palette | eyeshadow palettes | Color Cosmetics | 9-55 | color lip, style count | built in mirror, mineral powder, soft brush | smoky eyes, travel, beginners | highly pigmented, blendable
volumizing shampoo | shampoos | Hair | 6-38 | size volume, scent scent | biotin, keratin, rosemary oil, tea tree | fine hair, damaged hair, color treated hair | salt free, color safe
hair mask | hair treatments | Hair | 8-42 | size volume, scent scent | argan oil, coconut oil, silk protein, avocado oil | curly hair, dry hair, split ends | leave in, deep conditioning
permanent hair color | hair dyes | Hair | 6-30 | color hair, size count | coconut oil, brush applicator, olive extract | gray coverage, home use, short hair | ammonia free, odor free
clip in hair extensions | hair extensions | Hair | 18-140 | color hair, size furniture | double weft, silicone clips, human hair | thin hair, weddings, daily use | only tangle free, heat resistant, long lasting, light weight, easy apply, natural looking
hair brush | hair brushes | Hair | 5-34 | color colour, style count | boar bristles, bamboo handle, cushion base | thick hair, wet hair, scalp massage | only anti static, detangling, cruelty free, travel size, eco friendly, light weight
body lotion | body lotions | Body | 5-36 | scent scent, size volume | oatmeal, shea butter, almond oil, aloe vera | sensitive skin, dry skin, rough elbows | non greasy, fast absorbing
bath salts | bath salts | Body | 6-32 | scent scent, size weight | epsom salt, essential oils, dried flowers | sore muscles, relaxation, tired feet | mineral rich, vegan
bamboo toothbrush | toothbrushes | Teeth | 4-24 | color colour, size count | soft bristles, charcoal bristles, travel cap | sensitive teeth, bad breath, children | only biodegradable, bpa free, cruelty free, travel size, eco friendly, plastic free
nail polish set | nail polishes | Nails | 5-38 | color lip, style count | glitter topcoat, wide brush, gel shine | salon use, beginners, parties | chip resistant, quick drying
makeup bag | cosmetic pouches | Beauty Travel | 7-40 | color colour, size count | brush holder, adjustable dividers, double zipper | travel, brushes, toiletries | only water proof, easy carry, easy clean, light weight, leak proof, high capacity
"""

_ELECTRONICS = """
wireless earbuds | earphones | Listening | 15-160 | color colour, style bundle | noise cancelling, charging case, touch control, built in microphone | running, phone calls, small ears | sweat proof, hands free
over ear headphones | headphones | Listening | 22-240 | color colour, style bundle | noise cancelling, memory foam cushions, stereo sound | studio work, gaming, long flights | foldable, wireless
portable speaker | portable speakers | Listening | 14-180 | color colour, style bundle | stereo sound, led lights, carrying strap, dual drivers | camping, pool parties, small rooms | water proof, hands free
usb c cable | charging cables | Cables | 5-28 | color colour, size cable | nylon braid, aluminum alloy shell, gold plated plugs | tablets, car charging, data transfer | fast charging, tangle free
hdmi cable | video cables | Cables | 6-40 | size cable, color colour | gold plated connectors, nylon braid, ethernet channel | home theater, game consoles, projectors | 4k ultra, tangle free
phone case | phone covers | Phones | 7-45 | color colour, size phone | tempered glass, card slots, kickstand, magnetic ring | wireless charging, outdoor work, daily use | anti scratch, non slip
screen protector | screen protectors | Phones | 5-26 | size phone, style count | tempered glass, alignment frame, privacy filter | phones, tablets, cameras | case friendly, anti glare
power bank | portable chargers | Phones | 14-90 | color colour, style bundle | usb port, led display, solar panel, aluminum alloy shell | travel, hiking, tablets | fast charging, compact
tablet stand | tablet holders | Desk Devices | 8-48 | color finish, style count | aluminum alloy, rubber feet, adjustable arm | desks, kitchens, video calls | non slip, foldable
wireless keyboard | computer keyboards | Desk Devices | 16-120 | color colour, style bundle | back light, number pad, wrist rest, usb receiver | office work, tablets, small desks | quiet, rechargeable
webcam | computer cameras | Desk Devices | 18-130 | style bundle, color colour | privacy cover, built in microphone, ring light | video calls, streaming, online classes | auto focus, wide angle
computer monitor | monitors | Desk Devices | 90-480 | size screen, style bundle | adjustable stand, blue light filter, built in speakers | gaming, photo editing, office work | anti glare, frameless
security camera | home security cameras | Cameras | 22-190 | color finish, style bundle | night vision, motion detection, two way audio | front doors, nurseries, garages | weather proof, wireless
memory card | memory cards | Cameras | 7-110 | size memory, style count | adapter, error correction, plastic case | cameras, drones, dash cams | temperature proof, read only lock
camera tripod | tripods | Cameras | 15-160 | color colour, style bundle | ball head, quick release plate, carbon fiber legs, phone holder | bird watching, vlogging, night photography | foldable, easy carry
binoculars | field glasses | Outdoor Optics | 20-220 | color colour, style bundle | phone adapter, coated lenses, neck strap | bird watching, concerts, hunting | fog proof, high power
smart watch band | watch bands | Phones | 6-50 | color colour, size letters | stainless steel buckle, silicone strap, leather strap | sports, office wear, small wrists | only quick release, sweat proof, light weight, long lasting, easy clean, water resistant
"""

_FASHION = """
t-shirt | men's tees | Menswear | 8-42 | color colour, size letters, fit type fit | crew neck, short sleeves, chest pocket, combed cotton | gym workouts, daily wear, summer | tagless, classic
henley shirt | men's casual shirts | Menswear | 12-52 | color colour, size letters, fit type fit | long sleeves, button placket, waffle knit | layering, daily wear, cool evenings | slim cut, breathable
hooded sweatshirt | men's hoodies | Menswear | 16-75 | color colour, size letters, fit type fit | fleece lining, kangaroo pocket, drawstring hood | cold weather, camping, school | loose, pill resistant
chino pants | men's trousers | Menswear | 20-85 | color colour, size waist, fit type fit | elastic waist, stretch twill, deep pockets | office wear, golf, travel | stain resistant, slim cut
swim trunks | men's swimwear | Menswear | 12-48 | color colour, size letters, style pattern | mesh lining, drawstring closure, zipper pocket | beach days, surfing, pool parties | chlorine resistant, breathable
summer dress | day dresses | Womenswear | 16-90 | color colour, size letters, style pattern | v neck, side pockets, short sleeves, tie waist | beach vacation, garden parties, daily wear | flowy, lined
cocktail dress | party dresses | Womenswear | 24-150 | color colour, size letters, fit type fit | lace overlay, open back, polyester spandex, long sleeves | weddings, evening parties, dates | figure hugging, elegant
knit cardigan | cardigans | Womenswear | 18-95 | color colour, size letters, fit type fit | front buttons, ribbed cuffs, merino wool, long sleeves | layering, office wear, chilly evenings | chunky, loose
yoga leggings | sports leggings | Womenswear | 14-70 | color colour, size letters, style pattern | high waist, side pockets, tummy control, nylon spandex | yoga, running, gym workouts | squat proof, four way stretch
pajama set | women's nightwear | Womenswear | 18-80 | color colour, size letters, style pattern | button front, elastic waist, bamboo viscose | hot sleepers, lounging, gifts | breathable, loose
rain jacket | rainwear | Womenswear | 26-140 | color colour, size letters, fit type fit | adjustable hood, taped seams, zipper pockets | hiking, commuting, spring showers | wind proof, packable
ankle boots | women's short boots | Footwear | 28-160 | color colour, size shoes, fit type fit | rubber sole, side zipper, memory foam insole, block heel | wide feet, office wear, autumn | only slip resistant, faux leather, light weight, true to size, water resistant, easy clean
running sneakers | men's running shoes | Footwear | 26-150 | color colour, size shoes, fit type fit | arch support, rubber sole, mesh upper, reflective strips | road running, gym workouts, standing all day | only slip resistant, cushioned, light weight, true to size, breathable, quick drying
leather sandals | women's summer shoes | Footwear | 18-95 | color colour, size shoes | ankle strap, open toe, cork footbed, rubber sole | beach vacation, wide feet, summer | only slip resistant, hand stitched, light weight, true to size, easy clean, quick drying
crew socks | men's socks | Footwear | 6-30 | color colour, size letters, style pattern | arch support, cushioned sole, merino wool | hiking, diabetics, work boots | seamless, odor resistant
leather belt | men's belts | Bags and Belts | 12-65 | color colour, size letters | metal buckle, full grain leather, reversible strap | jeans, suits, gifts | only scratch resistant, classic, long lasting, hand made, true to size, fade resistant
crossbody bag | shoulder bags | Bags and Belts | 16-110 | color colour, style pattern | adjustable strap, card slots, vegan leather, zipper pocket | travel, concerts, daily use | only water resistant, small, light weight, easy carry, hand made, fade resistant
"""

_GARDEN = """
console table | hallway tables | Tables | 60-420 | color wood, size furniture | metal frame, solid wood top, storage shelf, two drawers | entryways, living rooms, narrow halls | scratch resistant, rustic
coffee table | coffee tables | Tables | 70-450 | color wood, size furniture | tempered glass top, storage shelf, steel legs, lift top | living rooms, small apartments, offices | rustic, sturdy
bookcase | bookcases | Storage | 55-360 | color wood, size furniture | five shelves, metal frame, anti tip kit, glass doors | home offices, bedrooms, plants | free standing, sturdy
bar stool | bar stools | Seating | 45-260 | color colour, style count | foot rest, faux leather seat, swivel base, high back | kitchen islands, pubs, dining rooms | height adjustable, stackable
upholstered bed frame | bed frames | Bedroom | 120-640 | color colour, size bed | button tufted headboard, wood slats, storage drawers | guest rooms, bedrooms, heavy sleepers | noise free, box spring free
memory foam mattress | foam mattresses | Bedroom | 130-720 | size bed, style count | gel foam, removable cover, bamboo fabric | side sleepers, back pain, guest rooms | only medium firm, breathable, eco friendly, noise free, super soft, ready use
throw pillow covers | cushion covers | Textiles | 8-42 | color colour, size pillow, style pattern | hidden zipper, linen fabric, velvet fabric, tassels | couches, patio chairs, bedrooms | only double sided, machine washable, super soft, eco friendly, fade resistant, hand made
area rug | floor rugs | Textiles | 25-320 | color colour, size rug, style pattern | rubber backing, jute fibers, low pile, fringe edges | living rooms, dining rooms, pets | non slip, stain resistant
blackout curtains | curtains | Textiles | 16-95 | color colour, size curtain | grommet top, thermal lining, linen texture | bedrooms, nurseries, sliding doors | only noise reducing, energy saving, machine washable, wrinkle free, eco friendly, super soft
pendant light | hanging lamps | Lighting | 28-240 | color finish, style count | glass shade, adjustable cord, metal cage, led bulb | kitchen islands, dining rooms, sloped ceilings | dimmable, industrial
table lamp | table lamps | Lighting | 18-140 | color finish, style count | linen shade, usb port, ceramic base, touch switch | bedside tables, reading, living rooms | dimmable, flicker free
floating shelf | wall shelves | Storage | 14-85 | color wood, size furniture | metal brackets, towel bar, solid pine | bathrooms, books, spice jars | wall mounted, rustic
storage basket | storage baskets | Storage | 10-60 | color colour, size count | cotton rope, leather handles, wooden lid | blankets, toys, laundry | foldable, woven
folding screen | room dividers | Decoration | 60-300 | color wood, size furniture | solid wood frame, linen panels, double hinges | studio apartments, offices, dressing rooms | foldable, free standing
patio chair set | patio chairs | Seating | 80-540 | color colour, style count | steel frame, seat cushions, wicker weave | balconies, gardens, poolside | weather proof, stackable
wall art print | framed pictures | Decoration | 9-120 | size pillow, style pattern | wooden frame, canvas texture, hanging hooks | living rooms, offices, bathrooms | ready hang, fade resistant
ceramic planter | plant pots | Decoration | 12-80 | color colour, size count, style pattern | drainage hole, bamboo saucer, wooden stand | succulents, herbs, window sills | frost proof, glazed
"""

_GROCERY = """
ground coffee | coffees | Drinks | 8-42 | flavor name roast, size weight | single origin beans, arabica beans, resealable bag | cold brew, espresso machines, offices | only fair trade, small batch, usda organic, kosher certified, freshly roasted, non gmo
herbal tea bags | herbal teas | Drinks | 5-30 | flavor name drink, size count | chamomile flowers, lemon peel, ginger root | bedtime, sore throats, gifts | caffeine free, usda organic
sparkling water | fizzy drinks | Drinks | 8-36 | flavor name drink, size multipack | natural flavors, real fruit juice, mineral salts | picnics, cocktails, parties | zero calorie, sugar free
trail mix | nut mixes | Snacks | 8-40 | flavor name sweet, size weight | dried cranberries, roasted almonds, pumpkin seeds | hiking, school lunches, road trips | protein rich, vegan
roasted almonds | roasted nuts | Snacks | 9-44 | flavor name snack, size weight | sea salt, olive oil, resealable bag | snacking, baking, gifts | protein rich, plant based
beef jerky | dried meats | Snacks | 7-48 | flavor name snack, size multipack | grass fed beef, natural smoke, sea salt | camping, road trips, gym bags | high protein, sugar free
potato chips | salty snacks | Snacks | 5-34 | flavor name snack, size multipack | sea salt, avocado oil, kettle cooking | parties, lunch boxes, movie nights | trans fat free, crunchy
granola bars | cereal bars | Breakfast | 6-36 | flavor name sweet, size multipack | whole grains, chia seeds, real honey | school lunches, quick breakfasts, hiking | nut free, chewy
steel cut oatmeal | hot cereals | Breakfast | 5-32 | flavor name sweet, size weight | whole grains, flax seeds, dried fruit | quick breakfasts, meal prep, children | usda organic, high fiber
chocolate truffles | chocolates | Sweets | 8-55 | flavor name sweet, size count | cocoa butter, hazelnut filling, gift box | gifts, valentine's day, weddings | hand made, soy free
gummy candy | chewy sweets | Sweets | 4-28 | flavor name drink, size weight | real fruit juice, natural colors, resealable bag | parties, movie nights, party favors | gelatin free, nut free
hot sauce | spicy sauces | Larder | 5-30 | flavor name spice, size count | habanero peppers, cane vinegar, roasted garlic | tacos, chicken wings, eggs | small batch, sugar free
pasta sauce | pasta sauces | Larder | 5-28 | flavor name spice, size multipack | san marzano tomatoes, fresh basil, olive oil | lasagna, weeknight dinners, pizza | slow cooked, usda organic
spice blend | seasonings | Larder | 4-26 | flavor name spice, size weight | smoked paprika, sea salt, shaker lid | grilling, roasted vegetables, soups | msg free, salt free
cupcake toppers | cake decorations | Sweets | 5-24 | color colour, size count | glitter paper, food safe sticks, reusable picks | birthday parties, baby showers, weddings | only double sided, ready use, food grade, hand made, eco friendly, party perfect
instant noodles | noodle meals | Larder | 6-38 | flavor name spice, size multipack | rice noodles, miso broth, dried vegetables | quick lunches, dorm rooms, camping | ready eat, vegan
dried mango | dried fruits | Snacks | 7-36 | flavor name spice, size weight | lime juice, no added sugar, resealable bag | snacking, trail mixes, school lunches | usda organic, chewy
"""


def _kinds(department: str, text: str) -> tuple[Kind, ...]:
    return tuple(_kind(department, line) for line in text.strip().splitlines())


def _kind(department: str, line: str) -> Kind:
    noun, query, aisle, prices, options, features, purposes, own = map(str.strip, line.split("|"))
    low, high = map(float, prices.split("-"))
    return Kind(
        department,
        noun,
        query,
        f"{DEPARTMENT_NAMES[department]} › {aisle} › {query.capitalize()} › {noun.capitalize()}",
        low,
        high,
        tuple(_option(words) for words in options.split(", ")),
        tuple(features.split(", ")),
        tuple(purposes.split(", ")),
        _qualities(department, own),
    )


def _qualities(department: str, own: str) -> tuple[str, ...]:
    """The kind's own and its department's; after "only", just its own."""
    if own.startswith("only "):
        return tuple(own.removeprefix("only ").split(", "))
    return (*own.split(", "), *QUALITIES[department].split(", "))


def _option(words: str) -> tuple[str, tuple[str, ...]]:
    name, pool = words.rsplit(" ", 1)
    return name, tuple(POOLS[pool].split(", "))


KINDS = (
    *_kinds("beauty", _BEAUTY),
    *_kinds("electronics", _ELECTRONICS),
    *_kinds("fashion", _FASHION),
    *_kinds("garden", _GARDEN),
    *_kinds("grocery", _GROCERY),
)

STARTS = (
    "al bel cor dal el fen gal hol is jun kel lor mar nor ol pel quin ros sol tam ul ver wil zan"
).split()
MIDDLES = "a e i o u ara eri oli una ivo".split()
ENDS = "bex den dia fal gra lin mont nix ora phy rin sta tek ton va vane wick zo".split()
SERIES = (
    "alder aspen aurora breeze canyon cedar comet coral crest dawn delta ember falcon fern glacier "
    "harbor hazel heron horizon indigo juniper lagoon lark laurel linden lunar maple meadow mesa "
    "mistral nova oasis opal orchard osprey pebble pine prairie quartz raven reef ridge river "
    "saffron sierra solstice sparrow spruce summit terra tide tundra valley vista willow zephyr"
).split()

# Nouns come in both numbers, so no sentence has an article or a verb that depends on it.
OPENINGS = (
    "Our {quality} {noun} with {feature}, made for {purpose}.",
    "Meet {series} by {brand}: {quality} {noun} with {feature}, just right for {purpose}.",
    "Looking for {quality} {noun} with {feature}? We designed {series} with {purpose} in mind.",
    "{brand} knows {noun}: {quality}, with {feature}, and popular for {purpose}.",
    "Say hello to {quality} {noun} with {feature}, and find out why people choose {brand} "
    "for {purpose}.",
)
MIDDLE_SENTENCES = (
    "Also {others}, as you may expect from our {query}.",
    "Customers who know {query} say: {others}.",
    "Of all our {query} the one to take if you want {others}.",
    "New among our {query}, and {others} from the first day on.",
)
CLOSINGS = {
    "beauty": (
        "Patch test before first use.",
        "Use it in the morning and at night for the best result.",
        "Made in small lots without harsh chemicals.",
        "A lovely gift for mothers, sisters and friends.",
    ),
    "electronics": (
        "In the box: the device, a quick start guide and a friendly support card.",
        "Comes with a 12 month replacement promise.",
        "Please check the model of your device before ordering.",
        "Tested for thousands of hours in our own laboratory.",
    ),
    "fashion": (
        "Please look at the size chart before ordering.",
        "Colors may differ slightly between screens.",
        "Pairs well with jeans, skirts or shorts.",
        "If it does not fit, send it back within 30 days.",
    ),
    "garden": (
        "All tools and a clear manual are included.",
        "Measure your room before ordering.",
        "Wipe with a damp cloth and it looks like new.",
        "Designed in our studio and packed with care.",
    ),
    "grocery": (
        "Store in a cool and dry place.",
        "Packed fresh and sealed for flavor.",
        "See the label for allergens.",
        "Share it with family and friends, or keep it all to yourself.",
    ),
}
BULLETS = (
    "{Feature}: you will wonder how you ever did without.",
    "Great for {purpose}: you will reach for it again and again.",
    "{Quality}: we chose every part with care to keep it {quality}.",
    "Made for {purpose} and for everyone who wants something {quality}.",
    "What you get: {noun} of the {series} line by {brand} and a helpful team behind it.",
    "{Quality} and {other}: {noun} that will earn a place in your home.",
)
