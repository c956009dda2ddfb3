"""Knobs as widgets: one place where a setting becomes a control and its change reaches the session."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attnviz.knobs import Choice, Flag, Integer, Lengths, Number, Several, Value, Words
from attnviz.reading import Settled
from attnviz.text import Refusal, Text
from pages.ui import folds, layout, link
from pages.ui.bus import Group
from pages.ui.live_slider import live_slider
from pages.ui.tracks import track
from pages.ui.translate import say, table


class Panel:
    """Hold one page's settings during a run: read them, draw their controls, write the address.

    The session holds the settings as text, exactly as a link carries them; a control's change is written there before
    the next run begins, so a run never sees half a change.

    Args:
        page: Key of the page.
        language: Language of the labels.
        settle: Turns settings as text into checked ones.
    """

    def __init__(self, page: str, language: str, settle: Callable[[Mapping[str, object]], Settled[Any]]):
        self.page, self.language = page, language
        arrived = link.incoming(page)
        self.late: DeltaGenerator | None = None
        folds.begin(page)
        if arrived is not None:
            folds.arrive(page, arrived.get(folds.OPEN, ""))
            st.session_state[self._store] = {name: text for name, text in arrived.items() if name != folds.OPEN}
            st.session_state[self._refused] = {}
        st.session_state.setdefault(self._refused, {})
        held = st.session_state.setdefault(self._store, {})
        self._settle = settle
        self.settled = settle(held)
        self.remarks = self._remember_remarks(arrived is not None)
        for name in self.settled.refused:
            self._keep(name, held[name], self.settled)
        # What could not be read is dropped, what had to follow is kept as it now is.
        st.session_state[self._store] = self.settled.link()

    @property
    def _store(self) -> str:
        return f"settings.{self.page}"

    @property
    def _refused(self) -> str:
        """Where text is kept that could not be read, with the sentence why: it stays for the person to mend."""
        return f"{self._store}.refused"

    def _keep(self, name: str, raw: object, settled: Settled[Any]) -> bool:
        """Keep a setting's text if it was refused and is words; the picture stays with the last that could be read."""
        kept = st.session_state[self._refused]
        kept.pop(name, None)
        # A setting that does not apply to the others has no knob.
        if name in settled.refused and isinstance(settled.knobs.get(name), Words):
            kept[name] = (str(raw), settled.refused[name])
        return name in kept

    def _remember_remarks(self, is_new: bool) -> list[str]:
        """Keep a run's remarks on the page until the settings change: the next run no longer meets their cause.

        Another link (``is_new``) has its own, also where it comes to the same settings.
        """
        settled_link = self.settled.link()
        fresh = [*link.problems(), *self.settled.problems, *self.settled.notes]
        kept, said = st.session_state.get(f"{self._store}.remarks", (None, []))
        if fresh or is_new or kept != settled_link:
            said = fresh
            st.session_state[f"{self._store}.remarks"] = (settled_link, said)
        return [text.say(self.language) for text in said]

    def remark(self, text: Text) -> None:
        """Put a remark on the coming run's page: why what was just asked for was not done."""
        st.session_state[f"{self._store}.remarks"] = (self.settled.link(), [text])

    def _key(self, name: str) -> str:
        return f"{self.page}.{name}"

    def _value(self, name: str) -> Value:
        return self.settled.values[name]

    def set(self, name: str, value: Value | None) -> None:
        """Put one setting into the session; None takes it back to its default."""
        link.from_control()
        st.session_state[self._refused].pop(name, None)
        held = st.session_state[self._store]
        if value is None:
            held.pop(name, None)
        else:
            held[name] = self.settled.knobs[name].write(value)

    def reset(self) -> None:
        """Take every setting back to its default."""
        link.from_control()
        st.session_state[self._store] = {}
        st.session_state[self._refused] = {}

    def _take(self, name: str, sets: Sequence[str] = ()) -> None:
        """Read a widget after its change, which also sets others; what cannot be read is named and changes nothing."""
        link.from_control()
        raw = st.session_state[self._key(name)]
        if raw is None:
            return
        held = st.session_state[self._store]
        if isinstance(self.settled.knobs[name], Words):
            if not self._keep(name, raw, self._settle(held | {name: raw})):
                held[name] = raw
            # Whatever was said of the text before it was mended.
            st.session_state.pop(f"{self._store}.remarks", None)
            return
        for other in sets:
            held.pop(other, None)
        try:
            held[name] = self.settled.knobs[name].write(self.settled.knobs[name].parse(raw))
        except Refusal:
            held[name] = str(raw)  # settle names it on the coming run

    def control(
        self,
        name: str,
        *,
        options: Sequence[str] | None = None,
        segmented: bool = False,
        bare: bool = False,
        sets: Sequence[str] = (),
    ) -> None:
        """Draw the widget of one setting.

        Args:
            name: The setting.
            options: The options of a choice to offer; None offers all.
            segmented: Whether a choice shows its options side by side.
            bare: Whether the label is only there for those who do not see the page.
            sets: Settings whose defaults this one decides; its change takes them back to those.
        """
        knob, key = self.settled.knobs[name], self._key(name)
        common = {
            "label": knob.label.say(self.language),
            "help": None if knob.help is None else knob.help.say(self.language),
            "key": key,
            "on_change": self._take,
            "args": (name, sets),
        }
        value = self._value(name)
        if isinstance(knob, Choice):
            st.session_state[key] = value
            labels = knob.options
            chosen = list(labels) if options is None else list(options)
            if bare:
                common |= {"label_visibility": "collapsed"}
            widget = st.segmented_control if segmented else st.selectbox
            widget(options=chosen, format_func=lambda option: labels[option].say(self.language), **common)
        elif isinstance(knob, Several):
            self._several(name, knob, common)
        elif isinstance(knob, Flag):
            st.session_state[key] = value
            st.toggle(**common)
        elif isinstance(knob, Words):
            text, problem = st.session_state[self._refused].get(name, (value, None))
            st.session_state[key] = text
            # No limit of its own: the browser would drop a text that is too long without a word.
            st.text_area(height=96, **common)
            if problem is not None:
                st.caption(f":red[{layout.escape(problem.say(self.language))}]")
        elif isinstance(knob, Lengths):
            st.session_state[key] = knob.write(value)
            st.text_input(**common)
        elif isinstance(knob, Number):
            st.session_state[key] = cast("float", value)
            st.number_input(min_value=knob.low, max_value=knob.high, step=knob.step, **common)
        else:
            self._integer(name, cast("Integer", knob), common)

    def _several(self, name: str, knob: Several, common: dict) -> None:
        key, labels = common["key"], knob.options
        st.session_state[key] = str(self._value(name)).split(",")

        def change() -> None:
            # Without any there would be nothing to show: the last one stays.
            chosen = st.session_state[key]
            self.set(name, ",".join(chosen) if chosen else self._value(name))

        common |= {"on_change": change, "args": ()}
        st.multiselect(
            options=list(labels),
            format_func=lambda option: labels[option].say(self.language),
            max_selections=knob.most,
            **common,
        )

    def _integer(self, name: str, knob: Integer, common: dict) -> None:
        # A link may call a setting by another name than its mask does, where the page has one of that name itself.
        st.session_state[common["key"]] = cast("int", self._value(name))
        st.number_input(min_value=knob.low, max_value=knob.high, step=1, **common)

    def live(
        self,
        name: str,
        group: Group,
        *,
        high: int | None = None,
        stops: Sequence[int] | None = None,
        play: bool = False,
        beat: int | None = None,
    ) -> None:
        """Draw one setting as a slider that the pictures of ``group`` follow while it is dragged.

        Args:
            name: The setting, an ``Integer``, a ``Number``, or a ``Choice`` whose options have an order.
            group: The pictures.
            high: Where the track ends; None means where the knob says.
            stops: The positions; None means the knob's own.
            play: Whether a button lets it run by itself.
            beat: Milliseconds that it then rests on each position; None means the slider's own.
        """
        knob, value = self.settled.knobs[name], self._value(name)
        places = track(knob, value, self.settled.defaults[name], self.language, high=high, stops=stops)
        keys = list(places.get("options", ()))
        live_slider(
            name,
            knob.label.say(self.language),
            keys.index(str(value)) if keys else cast("float", value),
            unit=None if knob.unit is None else knob.unit.say(self.language),
            help=None if knob.help is None else knob.help.say(self.language),
            group=group,
            key=self._key(name),
            words=table(self.language, "slider"),
            on_value=lambda moved: self.set(name, keys[int(moved)] if keys else moved),
            play=play,
            beat=beat,
            **places,
        )

    def bundle(self, key: str, label: str, bundles: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
        """Draw options side by side, each of which sets several settings at once; the one that holds is marked.

        Args:
            key: Key of the control within the page.
            label: Its label.
            bundles: Key of the option → its label and the settings that it makes, as a link carries them.
        """
        own = self._key(key)
        values, knobs = self.settled.values, self.settled.knobs
        holds = (
            option
            for option, (_, settings) in bundles.items()
            if all(knobs[name].write(values[name]) == text for name, text in settings.items())
        )
        st.session_state[own] = next(holds, None)

        def change() -> None:
            # A second click on the one that holds takes the choice away; nothing else changes then.
            chosen = st.session_state[own]
            if chosen is not None:
                st.session_state[self._store] |= bundles[chosen][1]

        st.segmented_control(
            label, list(bundles), format_func=lambda option: bundles[option][0], key=own, on_change=change
        )

    def link(self) -> dict[str, str]:
        """Give what a link to this view carries: the settings, and the sections that someone opened."""
        return self.settled.link() | folds.settings(self.page)

    def write_link(self) -> None:
        """Mirror the settings in the address, at the end of the run; say there what its link named in vain."""
        strange = folds.finish(self.page)
        if strange is not None:
            kept, said = st.session_state[f"{self._store}.remarks"]
            st.session_state[f"{self._store}.remarks"] = (kept, [*said, strange])
            layout.remarks([strange.say(self.language)], self.late)
        link.write(self.page, self.link())

    def title(self, key: str, **fields: object) -> str:
        """Give a text of this page."""
        return say(self.language, f"{self.page}.{key}", **fields)
