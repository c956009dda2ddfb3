"""What a component needs to take part in a live group: the script that links them, and the server's side of it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from pages.ui import link

_ROUTE = "live.route"
_BUS = (Path(__file__).parent / "bus.js").read_text(encoding="utf-8")


def with_bus(script: str) -> str:
    """Give a component's module with the bus in front of it, so that whichever component mounts first installs it."""
    return f"{_BUS}\n{script}"


def note_route(live: object) -> None:
    """Remember whether this session's browser reaches the live route; anything but True counts as no."""
    link.from_control()  # called when a component sent something
    st.session_state[_ROUTE] = live is True


def route_is_live() -> bool:
    """Say whether this session's browser is known to reach the live route."""
    return st.session_state.get(_ROUTE) is True


def _stamp() -> int:
    """Give a number that grows from run to run, also across a restart of the server."""
    return time.time_ns() // 1_000_000


def following(group: "Group | None", part: str | None) -> dict[str, object]:
    """Give the entries for the data of a figure that stands by itself, or is a part of its group's live frames.

    Raises:
        ValueError: If only one of group and part is given.
    """
    if (group is None) != (part is None):
        raise ValueError(f"group and part must be given together, got group={group!r} and part={part!r}")
    return {**(group.data() if group is not None else {"group": None}), "part": part}


@dataclass(frozen=True)
class Group:
    """Say what a run of the page knows about one live group; make one per run and give it to every component.

    Args:
        name: Name of the group; pictures and sliders with the same name belong together.
        url: Path of the route below the app's own address, such as "/live/attention".
        params: Parameters as they stand in a link, with the language under "lang".
        acks: Slider name → number of the last release that ``params`` takes into account.
        run: Stamp of the run; the browser ignores what an older run says.
    """

    name: str
    url: str
    params: Mapping[str, str]
    acks: Mapping[str, int] = field(default_factory=dict)
    run: int = field(default_factory=_stamp)

    def data(self, acks: Mapping[str, int] | None = None) -> dict[str, object]:
        """Give the entries for a component's data.

        Args:
            acks: Further confirmations that the component itself knows.
        """
        return {
            "group": self.name,
            "url": self.url,
            "params": dict(self.params),
            "acks": {**self.acks, **(acks or {})},
            "run": self.run,
        }
