// A Plotly figure that keeps its node and its zoom while its data changes, coloured from the theme. Its library comes
// once from the app's own server; where it cannot be had, the figure's numbers stand in a table instead.

const instances = new WeakMap()
const NUMBERS = {
  f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, i2: Int16Array, u2: Uint16Array,
  i1: Int8Array, u1: Uint8Array, u1c: Uint8ClampedArray,
} // prettier-ignore
const MOST_ROWS = 200
// Narrower than this, a figure does without the notes that are named "wide".
const NARROW = 560

// Plotly reads neither CSS variables nor color-mix(): the browser's canvas turns any colour into plain numbers.
function faded(color, alpha) {
  const context = (faded.context ??= document.createElement("canvas").getContext("2d"))
  context.fillStyle = "#888"
  context.fillStyle = color
  const plain = context.fillStyle
  if (!plain.startsWith("#")) return plain
  const [r, g, b] = [1, 3, 5].map(at => parseInt(plain.slice(at, at + 2), 16))
  return `rgba(${r},${g},${b},${alpha})`
}

// The theme as a template: whatever a figure itself says about its looks wins over it.
function template(node) {
  const style = getComputedStyle(node)
  const read = name => style.getPropertyValue(`--st-${name}`).trim()
  const text = faded(read("text-color"), 1)
  const size = parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.8125
  const axis = {
    gridcolor: faded(read("text-color"), 0.15),
    linecolor: faded(read("text-color"), 0.4),
    zerolinecolor: faded(read("text-color"), 0.3),
    tickcolor: faded(read("text-color"), 0.4),
    automargin: true,
    title: { standoff: 8 },
  }
  const colors = read("chart-categorical-colors").split(",").filter(Boolean)
  return {
    layout: {
      font: { color: text, family: read("font") || "sans-serif", size },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      ...(colors.length ? { colorway: colors } : {}),
      hoverlabel: {
        bgcolor: faded(read("secondary-background-color"), 1),
        bordercolor: faded(read("text-color"), 0.4),
        font: { color: text },
      },
      legend: { bgcolor: "rgba(0,0,0,0)" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: faded(read("text-color"), 0.6), activecolor: text },
      margin: { l: 48, r: 16, t: 32, b: 40 },
      xaxis: axis,
      yaxis: axis,
    },
  }
}

// A copy, for Plotly writes into what it draws; only columns of numbers are shared. A figure may name the theme's
// colours, "theme-0" and so on, where each of its traces is to keep one of its own, and "theme-text" its ink.
function named(part, colors) {
  if (typeof part === "string") return part.startsWith("theme-") ? (colors[part.slice(6)] ?? "#888") : part
  if (Array.isArray(part)) return typeof part[0] === "number" ? part : part.map(one => named(one, colors))
  if (!part || typeof part !== "object") return part
  return Object.fromEntries(Object.entries(part).map(([name, one]) => [name, named(one, colors)]))
}

function values(column) {
  if (!column) return []
  if (Array.isArray(column)) return column
  if (!column.bdata || !NUMBERS[column.dtype]) return []
  const bytes = Uint8Array.from(atob(column.bdata), char => char.charCodeAt(0))
  return [...new NUMBERS[column.dtype](bytes.buffer)]
}

function cell(kind, text) {
  const made = document.createElement(kind)
  made.textContent = typeof text === "number" ? String(Number(text.toPrecision(6))) : String(text ?? "")
  return made
}

class Plot {
  constructor(root) {
    const find = name => root.querySelector(`[data-part="${name}"]`)
    this.root = root
    this.parts = Object.fromEntries(["caption", "figure", "chart", "fallback", "problem"].map(name => [name, find(name)]))
    this.data = null
    this.following = new globalThis.attnviz.Following(
      () => this.draw(),
      sentence => (this.parts.problem.textContent = sentence),
    )
    this.theme = null
    this.drawing = false
    this.again = false
    this.ended = false
    this.resizing = null
    this.size = new ResizeObserver(() => this.fit())
    this.size.observe(this.parts.chart)
  }

  // A run of the page has something to say, or the theme changed.
  render({ data }) {
    this.data = data
    this.theme = null // to be read anew: reading it makes the browser settle every style, too slow for each frame
    if (this.ended) {
      this.ended = false
      this.size.observe(this.parts.chart)
    }
    this.following.render(data)
  }

  // Plotly draws in steps, some of them later: what is under way would fall over a chart that is gone.
  async end() {
    this.following.leave()
    this.size.disconnect()
    this.ended = true
    await Promise.allSettled([this.drawing, this.resizing])
    if (this.ended) globalThis.Plotly?.purge(this.parts.chart)
  }

  // What is on screen, or will be next.
  get spec() {
    return this.following.spec
  }

  // One drawing at a time; what arrives meanwhile is drawn after it, and only the newest of it.
  draw() {
    this.again = true
    this.drawing ||= this.drawAll().finally(() => (this.drawing = false))
    return this.drawing
  }

  async drawAll() {
    while (this.again && !this.ended) {
      this.again = false
      await this.drawOnce()
    }
  }

  async drawOnce() {
    const { figure, chart, fallback } = this.parts
    figure.setAttribute("aria-label", this.spec.layout?.meta?.alt ?? this.data.label)
    this.parts.caption.textContent = this.spec.layout?.meta?.caption ?? ""
    // Its place is kept while the library is on its way, so that what stands below does not jump.
    chart.style.minHeight = `${this.spec.layout?.height ?? this.data.height}px`
    let plotly
    try {
      plotly = await globalThis.attnviz.library(this.data.asset)
    } catch {
      return this.tabulate()
    }
    if (this.ended) return
    fallback.hidden = true
    chart.hidden = false
    const theme = (this.theme ??= template(this.root))
    const { data, layout } = named(this.spec, { ...theme.layout.colorway, text: theme.layout.font.color })
    this.narrow = chart.clientWidth < NARROW
    // Legends take more lines there.
    if (this.narrow && layout.meta?.narrow_height) layout.height = layout.meta.narrow_height
    if (this.narrow && layout.annotations) layout.annotations = layout.annotations.filter(note => note.name !== "wide")
    const own = { uirevision: "kept", autosize: true, height: this.data.height, ...layout, template: theme }
    await this.put(plotly, data, own)
    // Only now: whoever waits for a picture finds it drawn.
    this.drawn = (this.drawn ?? 0) + 1
    this.root.dataset.drawn = this.drawn
  }

  // Where nothing but the shapes changed, such as a line at the slider's value, they alone are moved: the rest of a
  // figure costs several times as much.
  async put(plotly, data, layout) {
    const { chart } = this.parts
    const { shapes = [], meta, ...rest } = layout
    const look = JSON.stringify([data, rest, this.data.words])
    if (this.look === look && chart._fullLayout) return plotly.relayout(chart, { shapes })
    this.look = look
    await plotly.react(chart, data, layout, this.config())
  }

  config() {
    const { words, label } = this.data
    return {
      responsive: false, // the observer sees every change of size, not only the window's
      displaylogo: false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      toImageButtonOptions: { filename: label, scale: 2 },
      locale: "page",
      locales: {
        page: {
          dictionary: {
            "Download plot as a PNG": words.download,
            Zoom: words.zoom,
            Pan: words.pan,
            "Reset axes": words.reset,
            "Double-click to zoom back out": words.zoom_out,
          },
          format: {},
        },
      },
    }
  }

  fit() {
    const { chart } = this.parts
    if (!globalThis.Plotly || !chart._fullLayout || this.drawing || !chart.clientWidth) return
    if (this.narrow !== chart.clientWidth < NARROW) this.draw()
    else this.resizing = globalThis.Plotly.Plots.resize(chart).catch(() => {}) // hidden meanwhile: it is resized when shown
  }

  tabulate() {
    const { chart, fallback } = this.parts
    chart.hidden = true
    fallback.hidden = false
    const table = document.createElement("table")
    for (const trace of this.spec.data ?? []) {
      const [x, y] = [values(trace.x), values(trace.y)]
      const head = table.insertRow()
      head.append(cell("th", trace.name ?? "x"), cell("th", trace.name ? "" : "y"))
      for (let i = 0; i < Math.min(y.length, MOST_ROWS); i++) {
        const row = table.insertRow()
        row.append(cell("td", x[i] ?? i), cell("td", y[i]))
        if (Array.isArray(trace.text)) row.append(cell("td", trace.text[i]))
      }
    }
    fallback.replaceChildren(cell("p", this.data.words.no_chart), table)
  }
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Plot(root))
  const plot = instances.get(root)
  plot.render(component)
  return () => plot.end()
}
