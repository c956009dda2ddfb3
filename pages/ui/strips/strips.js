// Rows of bars, one below the other on one scale from 0 to 1, that follow a slider. No library: it is a page's first
// picture, and five paths are drawn in a millisecond.

const instances = new WeakMap()
const SVG = "http://www.w3.org/2000/svg"
// How much of its place a bar fills.
const WIDTH = 0.88

function made(kind, name, parent) {
  const element = kind === "svg" || kind === "path" ? document.createElementNS(SVG, kind) : document.createElement(kind)
  if (name) element.setAttribute("class", `attnviz-strips-${name}`)
  parent.append(element)
  return element
}

function fill(sentence, fields) {
  return sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole))
}

// Bars that stand on 1 and reach up by their value, in units of a bar's place.
function outline(values) {
  const bar = (value, at) => (value > 0 ? `M${at + (1 - WIDTH) / 2} 1v${-value}h${WIDTH}v${value}z` : "")
  return values.map(bar).join("")
}

class Strips {
  constructor(root) {
    const find = name => root.querySelector(`[data-part="${name}"]`)
    this.root = root
    this.parts = Object.fromEntries(["caption", "figure", "rows", "ticks", "tip", "problem"].map(name => [name, find(name)]))
    this.lines = []
    this.following = new globalThis.attnviz.Following(
      () => this.draw(),
      sentence => (this.parts.problem.textContent = sentence),
    )
    const { rows, tip } = this.parts
    rows.onpointermove = rows.onpointerdown = event => this.point(event)
    rows.onblur = () => (tip.hidden = true)
    // A finger that lifts has only tapped: what it asked for stays.
    rows.onpointerleave = ({ pointerType }) => (tip.hidden ||= pointerType !== "touch")
    rows.onkeydown = event => this.key(event)
  }

  render({ data }) {
    this.words = data.words
    this.root.classList.toggle("attnviz-strips-names", data.names_only)
    this.root.inert = data.names_only
    this.parts.rows.setAttribute("aria-label", data.words.keys_help)
    const style = getComputedStyle(this.root)
    this.colors = style.getPropertyValue("--st-chart-categorical-colors").split(",").filter(Boolean)
    this.following.render(data)
    // Reading the library keeps a browser busy: only once the rows are painted.
    if (data.charts) requestAnimationFrame(() => setTimeout(() => globalThis.attnviz.library(data.charts).catch(() => {})))
  }

  draw() {
    const { data, layout } = this.following.spec
    const { figure, caption, tip } = this.parts
    figure.setAttribute("aria-label", layout.meta.alt)
    caption.textContent = layout.meta.caption ?? ""
    if (this.lines.length !== data.length) this.build(data.length)
    data.forEach((row, at) => this.fill(this.lines[at], row))
    this.mark(layout)
    if (!tip.hidden) this.say()
    this.drawn = (this.drawn ?? 0) + 1
    this.root.dataset.drawn = this.drawn
  }

  build(count) {
    this.parts.rows.replaceChildren()
    this.lines = Array.from({ length: count }, () => {
      const line = made("div", "row", this.parts.rows)
      const head = made("div", "head", line)
      const [name, note] = [made("strong", "", head), made("span", "", head)]
      const svg = made("svg", "track", line)
      svg.setAttribute("preserveAspectRatio", "none")
      return { name, note, svg, path: made("path", "", svg) }
    })
  }

  fill({ name, note, svg, path }, row) {
    const color = this.colors[row.color]?.trim() ?? "currentColor"
    name.textContent = row.name
    note.textContent = row.text
    name.style.color = color
    path.style.fill = color
    svg.setAttribute("viewBox", `0 0 ${row.y.length} 1`)
    path.setAttribute("d", outline(row.y))
  }

  // Whole numbers under the middle of their bars.
  mark({ keys, pool, ticks }) {
    const places = Math.ceil(keys / pool)
    const look = JSON.stringify([ticks, places])
    if (this.look === look) return
    this.look = look
    this.parts.ticks.replaceChildren()
    for (const tick of ticks) {
      const label = made("span", "tick", this.parts.ticks)
      label.textContent = tick
      label.style.left = `${(100 * (Math.floor(tick / pool) + 0.5)) / places}%`
    }
  }

  point({ clientX, target }) {
    const line = this.lines.findIndex(({ svg }) => svg.parentElement.contains(target))
    if (line < 0) return
    const box = this.lines[line].svg.getBoundingClientRect()
    const bars = this.following.spec.data[line].y.length
    const place = Math.floor(((clientX - box.left) / box.width) * bars)
    this.say(line, place)
  }

  key(event) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? []
    if (event.key === "Escape") this.parts.tip.hidden = true
    if (down === undefined) return
    event.preventDefault()
    // The first key shows where one is.
    if (this.parts.tip.hidden) return this.say(this.pointed?.line ?? 0, this.pointed?.place ?? 0)
    this.say(this.pointed.line + down, this.pointed.place + right)
  }

  // What a bar is, beside it.
  say(line = this.pointed.line, place = this.pointed.place) {
    const { tip, figure } = this.parts
    const { data, layout } = this.following.spec
    const within = (value, count) => Math.max(0, Math.min(count - 1, value))
    line = within(line, data.length)
    const { name, y } = data[line]
    place = within(place, y.length)
    this.pointed = { line, place }
    const [first, last] = [place * layout.pool, Math.min(layout.keys, (place + 1) * layout.pool) - 1]
    const value = y[place] === null ? "NaN" : String(Number(y[place].toPrecision(4)))
    tip.textContent = fill(this.words[first === last ? "tip" : "tip_pooled"], { name, first, last, value })
    tip.hidden = false
    const [track, whole] = [this.lines[line].svg.getBoundingClientRect(), figure.getBoundingClientRect()]
    const bar = track.left - whole.left + ((place + 1) / y.length) * track.width
    const fits = bar + 6 + tip.offsetWidth <= whole.width
    // On its other side where there is no room.
    const left = fits ? bar + 6 : bar - track.width / y.length - 6 - tip.offsetWidth
    tip.style.left = `${Math.max(0, left)}px`
    tip.style.top = `${track.top - whole.top + (track.height - tip.offsetHeight) / 2}px`
  }
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Strips(root))
  const strips = instances.get(root)
  strips.render(component)
  return () => strips.following.leave()
}
