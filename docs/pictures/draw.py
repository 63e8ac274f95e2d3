"""Draw the figures of the documentation: `python docs/pictures/draw.py`.

What has numbers is computed here, from fixed seeds and with fedrl's own code where it has some.
"""

from __future__ import annotations

import explain_figures
import method_figures
import round_figures

if __name__ == "__main__":
    for module in (round_figures, method_figures, explain_figures):
        for name, draw in sorted(vars(module).items()):
            if name.startswith("draw_"):
                draw().save(name.removeprefix("draw_"))
                print(f"{name.removeprefix('draw_')}.svg")
