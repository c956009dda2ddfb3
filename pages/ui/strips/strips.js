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
    this.parts.rows.onpointermove = event => this.point(event)
    this.parts.rows.onpointerdown = event => this.point(event)
    this.parts.rows.onpointerleave = () => (this.parts.tip.hidden = true)
  }

  render({ data }) {
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

  // The bar under the pointer, its key and its value.
  point({ clientX, target }) {
    const line = this.lines.findIndex(({ svg }) => svg.parentElement.contains(target))
    if (line < 0) return
    const box = this.lines[line].svg.getBoundingClientRect()
    this.pointed = { line, share: Math.min(1, Math.max(0, (clientX - box.left) / box.width)) }
    this.say()
  }

  say() {
    const { tip, rows } = this.parts
    const { line, share } = this.pointed
    const { data, layout } = this.following.spec
    const row = data[line]
    if (!row) return (tip.hidden = true)
    const place = Math.min(row.y.length - 1, Math.floor(share * row.y.length))
    const [first, last] = [place * layout.pool, Math.min(layout.keys, (place + 1) * layout.pool) - 1]
    const value = row.y[place] === null ? "NaN" : String(Number(row.y[place].toPrecision(4)))
    tip.textContent = `${row.name} · ${first === last ? first : `${first}–${last}`} · ${value}`
    tip.hidden = false
    // Beside the pointer, inside the figure.
    const [track, whole] = [this.lines[line].svg.getBoundingClientRect(), rows.getBoundingClientRect()]
    const left = track.left - whole.left + share * track.width + 12
    tip.style.left = `${Math.max(0, Math.min(left, whole.width - tip.offsetWidth))}px`
    tip.style.top = `${track.top - whole.top - 4}px`
  }
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Strips(root))
  const strips = instances.get(root)
  strips.render(component)
  return () => strips.following.leave()
}
