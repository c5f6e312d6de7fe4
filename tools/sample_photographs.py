"""Lists the real photographs in the distributions' packages, and what they show.

The list was made by looking at every picture of the packages; drawings and
renderings, which are far more numerous, are left out. A photograph that several
packages or versions contain under one name is used once. Packages that a release
does not have are skipped.
"""

from dataclasses import dataclass

# All are in Debian 12 (main), and under the same names in Ubuntu (universe).
PACKAGES = (
    "python3-sklearn",
    "python3-skimage",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
    "lxqt-themes",
    "mate-backgrounds",
    "plasma-workspace-wallpapers",
)

# With so many at hand, packages that are missing are not asked for again.
ENOUGH = 45


@dataclass(frozen=True)
class Entry:
    label: str  # the class it belongs to
    name: str  # used in file names
    package: str
    pattern: str  # under the package's tree; of several files the largest is taken


def _entries(package, pattern, photographs):
    return tuple(Entry(label, name, package, pattern.format(where))
                 for label, name, where in photographs)


PHOTOGRAPHS = (
    *_entries("python3-sklearn", "usr/**/sklearn/datasets/images/{}.jpg", (
        ("buildings", "china", "china"),
        ("flowers", "dahlia", "flower"),
    )),
    *_entries("python3-skimage", "usr/**/skimage/data/{}", (
        ("people", "astronaut", "astronaut.png"),
        ("people", "cameraman", "camera.png"),
        ("animals", "cat", "chelsea.png"),
        ("things", "coffee", "coffee.png"),
        ("things", "motorcycle", "motorcycle_left.png"),
        ("things", "coins", "coins.png"),
        ("buildings", "rocket", "rocket.jpg"),
        ("buildings", "bricks", "brick.png"),
        ("leaves", "grass_grey", "grass.png"),
        ("sky", "galaxies", "hubble_deep_field.jpg"),
    )),
    *_entries("lomiri-wallpapers-16.04", "usr/share/backgrounds/{}*.jpg", (
        ("water", "bridge", "Bridge_by"),
        ("leaves", "hazel", "Dragonfly_by"),
        ("things", "fig", "Picture_0B_by"),
        ("things", "brushes", "Picture_1A_by"),
        ("people", "room", "Wine_by"),
        ("mountains", "aitzgorri", "aitzgorri_by"),
        ("animals", "parrot", "free_by"),
        ("animals", "dogs", "friends_by"),
        ("things", "clock", "greentock_by"),
        ("water", "brook", "life_by"),
        ("mountains", "picos", "picosdeeuropa_by"),
        ("flowers", "dandelion", "seeding_by"),
        ("sky", "sunset", "sunset_by"),
    )),
    *_entries("lomiri-wallpapers-20.04", "usr/share/backgrounds/{}*.jpg", (
        ("animals", "nuthatch", "Kleiber_by"),
    )),
    *_entries("lxqt-themes", "usr/share/lxqt/wallpapers/{}", (
        ("animals", "fritillary", "Butterfly-Kenneth-Wimer.jpg"),
        ("mountains", "valendas", "Valendas.png"),
        ("sky", "after_rain", "after-the-rain.jpg"),
        ("flowers", "apple_flower", "appleflower.png"),
        ("sky", "beam", "beam.png"),
        ("animals", "swallowtail", "butterfly.png"),
        ("sky", "clouds", "cloud.png"),
        ("leaves", "drop", "drop.png"),
        ("flowers", "meadow_flowers", "flowers.png"),
        ("mountains", "fog", "fog.jpg"),
        ("mountains", "hills", "this-is-not-windows.jpg"),
    )),
    *_entries("mate-backgrounds", "usr/share/backgrounds/mate/nature/{}.jpg", (
        ("water", "splash", "Aqua"),
        ("leaves", "blind_leaf", "Blinds"),
        ("leaves", "dune_grass", "Dune"),
        ("flowers", "orange_flower", "FreshFlower"),
        ("flowers", "marigold", "Garden"),
        ("leaves", "green_meadow", "GreenMeadow"),
        ("animals", "ladybird", "LadyBird"),
        ("leaves", "rain_drops", "RainDrops"),
        ("sky", "storm", "Storm"),
        ("flowers", "two_seeds", "TwoWings"),
        ("things", "plank", "Wood"),
        ("flowers", "yellow_flower", "YellowFlower"),
    )),
    *_entries("plasma-workspace-wallpapers", "usr/share/wallpapers/{}/contents/images/*.jpg", (
        ("water", "frosty_pier", "BytheWater"),
        ("water", "grey_pier", "ColdRipple"),
        ("things", "cups", "ColorfulCups"),
        ("water", "dark_lake", "DarkestHour"),
        ("water", "boats", "EveningGlow"),
        ("leaves", "fallen_leaf", "FallenLeaf"),
        ("buildings", "facade", "Grey"),
        ("sky", "kite", "Kite"),
        ("leaves", "moss", "OneStandsOut"),
        ("mountains", "forest_path", "Path"),
        ("sky", "pink_lake", "summer_1am"),
    )),
)
