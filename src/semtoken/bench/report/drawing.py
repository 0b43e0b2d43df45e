"""A figure with its caption, and what all figures share. The same figure has the same bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from semtoken.guarantees.report_page import STYLE as PLAIN_STYLE
from semtoken.support.text import one_line, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 3
"""The number of panels side by side."""
LONGEST = 32
"""Characters of a name on an axis; longer ones are cut."""
LEGEND = 1.9
"""Width of the legend in inches."""
OURS, OTHERS = "#0072b2", "#b3b3b3"
COLORS = ("#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000", "#999999")
"""The colors of Okabe and Ito but for `OURS`, which most color-blind people can distinguish."""
STYLE = PLAIN_STYLE | {"axes.titlesize": 10.0, "figure.facecolor": "white", "savefig.dpi": 150}


@dataclass(frozen=True)
class Plot:
    """A figure with its caption; it is drawn when its files are asked for, which takes about a second."""

    name: str
    """The name of its files, without suffix."""
    title: str
    caption: str
    draw: Callable[[], Figure]

    @property
    def png(self) -> bytes:
        """The figure as pixels."""
        return self._files[0]

    @property
    def svg(self) -> bytes:
        """The figure as lines and text."""
        return self._files[1]

    @cached_property
    def _files(self) -> tuple[bytes, bytes]:
        """As PNG and SVG, without dates and versions, so that the same figure has the same bytes."""
        import matplotlib

        png, svg = io.BytesIO(), io.BytesIO()
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # PNG has boxes there, SVG the text
            figure = self.draw()
            if figure.get_layout_engine() is not None:
                figure.draw_without_rendering()
                # What was laid out just now stays for both files; with "none" each of them would be drawn once more.
                figure.set_layout_engine(None)
            figure.savefig(png, format="png", metadata={"Software": None})
            figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        return png.getvalue(), svg.getvalue()


def panels(count: int, *, width: float, height: float, sharex: bool = False) -> tuple[Figure, list[Axes]]:
    """A new figure with this many panels, `PANELS` of them in a row."""
    from matplotlib.figure import Figure

    columns = min(count, PANELS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    axes = list(grid.flat)
    for axis in axes[count:]:
        axis.remove()
    for axis in axes[:count]:
        axis.tick_params(labelbottom=True)
    return figure, axes[:count]


def legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    """Add a legend of these lines and points, by name, to the right of the panels."""
    figure.legend(handles.values(), map(label_of, handles), loc="outside right upper", frameon=False)


def label_of(text: str) -> str:
    """A shortened name that fits the axis of a plot."""
    return shortened(one_line(text), LONGEST)
