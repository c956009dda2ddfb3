// A slider whose movements reach the pictures of its group at once, and Streamlit when it is let go.

const QUIET_MS = 200 // after the last key, the value counts as let go
const instances = new WeakMap()

// Positions of the native range. With stops it counts them, otherwise it carries the value itself, so that the
// browser's own arrows, PageUp and End do what they do on any slider.
function scaleOf({ stops, low, high, step }) {
  if (stops) {
    const nearest = value =>
      stops.reduce((best, stop, i) => (Math.abs(stop - value) < Math.abs(stops[best] - value) ? i : best), 0)
    return { min: 0, max: stops.length - 1, step: 1, toPosition: nearest, toValue: i => stops[Math.round(i)] }
  }
  const toValue = position => Number(Number(position).toPrecision(12)) // 0.1 + 0.2 is to read 0.3
  return { min: low, max: high, step, toPosition: value => Math.min(high, Math.max(low, value)), toValue }
}

function written(value) {
  return String(Number(Number(value).toPrecision(12)))
}

function fill(sentence, fields) {
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole))
}

// What a person typed, with full-width digits and thousands commas; null when it is no number.
function typed(text) {
  const plain = text.normalize("NFKC").trim().replace(/(\d),(?=\d{3}(\D|$))/g, "$1")
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(plain) ? Number(plain) : null
}

class Slider {
  constructor(root) {
    const find = name => root.querySelector(`[data-part="${name}"]`)
    this.parts = Object.fromEntries(
      ["label", "help", "tip", "range", "box", "unit", "reset", "play", "problem", "low", "high"].map(name => [name, find(name)]),
    )
    this.root = root
    this.data = null
    this.value = null // what is shown
    this.held = false // moved and not yet let go
    this.sent = 0 // number of the last release
    this.underway = null // its value
    this.queued = null // without a live route: the newest value that waits for the run under way
    this.keyed = false
    this.typing = false
    this.timer = null
    this.beat = null // set while it plays
    this.listen()
  }

  listen() {
    const { range, box, reset, help, play } = this.parts
    range.oninput = () => {
      this.pause()
      this.move(this.scale.toValue(Number(range.value)))
    }
    play.onclick = () => (this.beat === null ? this.play() : this.stop())
    const letGo = () => setTimeout(() => this.flush())
    // Braces throughout: a handler that returns false would cancel the event.
    range.onkeydown = () => {
      this.keyed = true
    }
    range.onpointerdown = () => {
      this.keyed = false
      this.pause()
      // Beside "change", which does not come when the thumb ends where it began. After it, when it does come.
      for (const end of ["pointerup", "pointercancel"]) addEventListener(end, letGo, { once: true })
    }
    range.onchange = () => {
      if (this.keyed) this.flushSoon()
      else this.flush()
    }
    range.onblur = () => {
      if (this.beat === null) this.flush()
    }
    box.oninput = () => {
      this.typing = true
    }
    box.onkeydown = event => {
      if (event.key === "Enter") this.commit()
      if (event.key === "Escape") this.giveUp()
    }
    box.onblur = () => {
      this.commit()
      this.typing = false
      box.value = this.text(this.value)
    }
    help.onpointerenter = help.onfocus = () => this.placeTip()
    reset.onclick = () => {
      this.take(this.data.default)
      range.focus()
    }
    help.onkeydown = event => {
      if (event.key === "Escape") help.blur()
    }
  }

  // A run of the page has something to say, or the theme changed.
  render(component) {
    const { data, setStateValue } = component
    this.data = data
    this.send = setStateValue
    this.scale = scaleOf(data)
    if (this.group?.name !== data.group) this.join(globalThis.attnviz.group(data.group))
    this.group.configure(data)
    this.describe()
    if (this.settled && this.queued !== null) this.follow()
    else this.agree()
  }

  // What a person reads; the positions of a choice have names.
  text(value) {
    return this.data.names?.[value] ?? written(value)
  }

  // What the live route is asked for: a choice's key.
  param(value) {
    return this.data.keys?.[value] ?? value
  }

  // Whether the page's run has seen the last release.
  get settled() {
    return (this.data.acks[this.data.name] ?? 0) >= this.sent
  }

  // Show the page's value, unless a finger, a key or a half-typed number is in the way.
  agree() {
    if (!this.settled || this.held || this.typing || this.queued !== null) return
    const complaint = this.value === this.data.value ? this.parts.problem.textContent : ""
    this.show(this.data.value, complaint)
  }

  giveUp() {
    this.typing = false
    this.show(this.value)
    this.agree()
  }

  join(group) {
    this.off?.()
    this.group = group
    this.off = group.on("live", live => {
      if (!live && this.held) this.rerun(this.value)
    })
  }

  leave() {
    clearTimeout(this.timer)
    this.pause()
    this.off?.()
    this.group?.forget(this.data.name)
  }

  // The help of a slider at the right edge moves to the left until all of it is in sight.
  placeTip() {
    const { tip } = this.parts
    tip.style.left = ""
    const side = this.root.getRootNode().host?.closest('[data-testid="stSidebar"]') ?? document.documentElement
    const over = tip.getBoundingClientRect().right + 8 - side.getBoundingClientRect().right
    if (over > 0) tip.style.left = `calc(-0.75rem - ${over}px)`
  }

  describe() {
    const { data, scale } = this
    const { label, help, tip, range, box, unit, reset, play, low, high } = this.parts
    label.textContent = data.label
    play.hidden = !data.play
    this.markPlay()
    help.hidden = !data.help
    help.setAttribute("aria-label", fill(data.words.help, data))
    tip.textContent = data.help ?? ""
    for (const name of ["min", "max", "step"]) if (range[name] !== String(scale[name])) range[name] = scale[name]
    range.setAttribute("aria-label", data.label)
    box.setAttribute("aria-label", fill(data.words.box, data))
    unit.textContent = data.unit ?? ""
    const back = fill(data.words.reset, { label: data.label, default: this.text(data.default) })
    reset.title = back
    reset.setAttribute("aria-label", back)
    for (const part of [range, box, reset, play]) part.disabled = data.disabled
    this.root.toggleAttribute("data-disabled", data.disabled)
    box.readOnly = Boolean(data.names)
    low.textContent = this.text(scale.toValue(scale.min))
    high.textContent = this.text(scale.toValue(scale.max))
  }

  show(value, sentence = "") {
    const { range, box, reset, problem } = this.parts
    const { data, scale } = this
    this.value = value
    const position = scale.toPosition(value)
    range.value = position
    const share = scale.max > scale.min ? (100 * (position - scale.min)) / (scale.max - scale.min) : 0
    range.style.setProperty("--share", `${share}%`)
    range.setAttribute("aria-valuetext", data.unit ? `${this.text(value)} ${data.unit}` : this.text(value))
    if (!this.typing) box.value = this.text(value)
    reset.hidden = value === data.default
    problem.textContent = sentence
    if (sentence) box.setAttribute("aria-invalid", "true")
    else box.removeAttribute("aria-invalid")
  }

  move(value) {
    this.show(value)
    this.held = true
    if (this.group.live) this.group.move(this.data.name, this.param(value))
    if (!this.group.live) this.rerun(value)
  }

  // Go from position to position by itself, from the first one where it stands at the last; the end lets go.
  play() {
    const { scale } = this
    const position = scale.toPosition(this.value)
    if (position >= scale.max) this.move(scale.toValue(scale.min))
    this.beat = setInterval(() => {
      const next = scale.toPosition(this.value) + scale.step
      if (next <= scale.max) this.move(scale.toValue(next))
      if (next >= scale.max) this.stop()
    }, this.data.beat)
    this.markPlay()
  }

  pause() {
    clearInterval(this.beat)
    this.beat = null
    this.markPlay()
  }

  stop() {
    this.pause()
    this.flush()
  }

  markPlay() {
    const { play } = this.parts
    if (!this.data) return
    play.textContent = this.beat === null ? "▶" : "❚❚"
    play.setAttribute("aria-label", fill(this.data.words[this.beat === null ? "play" : "pause"], this.data))
    play.title = play.getAttribute("aria-label")
  }

  // Let go at once: typed, or set back.
  take(value) {
    this.typing = false
    this.pause()
    if (value === this.value && !this.held) return this.show(value)
    this.move(value)
    this.flush()
  }

  flushSoon() {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.flush(), QUIET_MS)
  }

  flush() {
    clearTimeout(this.timer)
    if (!this.held) return
    this.held = false
    this.queued = null
    // Back where it was: the page already says so, and there is nothing to run.
    if (this.settled && this.value === this.data.value) return this.group.forget(this.data.name)
    // The run under way without a live route has this very value already.
    if (!this.group.live && !this.settled && this.value === this.underway) return
    this.release(this.value)
  }

  release(value) {
    this.underway = value
    this.sent = this.group.release(this.data.name, this.param(value))
    this.send("release", { value, seq: this.sent, live: this.group.live })
  }

  // Without a live route every movement is a run of the page: one under way, and the newest value after it.
  rerun(value) {
    if (this.settled) this.release(value)
    else this.queued = value
  }

  follow() {
    const value = this.queued
    this.queued = null
    this.release(value)
  }

  commit() {
    const { box } = this.parts
    const { words, integer, typed_low: low, typed_high: high } = this.data
    const text = box.value
    if (!this.typing) return
    if (text === written(this.value)) return this.giveUp()
    const value = typed(text)
    const short = text.length > 24 ? `${text.slice(0, 23)}…` : text
    const fields = { text: short, low: written(low), high: written(high) }
    if (value === null) return this.show(this.value, fill(words.not_a_number, fields))
    if (value < low || value > high) return this.show(this.value, fill(words.out_of_range, fields))
    if (integer && !Number.isInteger(value)) return this.show(this.value, fill(words.not_whole, fields))
    this.take(value)
  }
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Slider(root))
  const slider = instances.get(root)
  slider.render(component)
  return () => slider.leave()
}
