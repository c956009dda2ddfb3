// Draws a frame's maps on one canvas, and lets people point at, select and zoom into them. What is drawn are codes of
// two bytes; a table of 65,536 colours per palette turns them into pixels, so a new picture costs one look-up per cell.
const TOP = 65529
const BELOW = 65531
const MASKED = 65532
const NO_KEY = 65533
const NAN = 65534
const INF = 65535
const LABEL = 13 // px; the smallest text that a back row still reads once the browser is zoomed
const GAP = 10
const BAR = 74
const DRAG = 6
const REST_MS = 45
const SETTLE_MS = 160
const LONGEST_LABEL = 96

const instances = new WeakMap()

// ---- colours -------------------------------------------------------------------------------------------------------

function rgb(colour, context) {
  context.clearRect(0, 0, 1, 1)
  context.fillStyle = "#888"
  context.fillStyle = colour.trim()
  context.fillRect(0, 0, 1, 1)
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)]
}

const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share))

// Streamlit hands its theme to components as variables; the ramps are the theme's own, so light and dark both read well.
function readTheme(element) {
  const style = getComputedStyle(element)
  const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
  const colour = (name, other) => rgb(style.getPropertyValue(name) || other, probe)
  const list = name => (style.getPropertyValue(name).match(/#[0-9a-f]{6}|rgba?\([^)]*\)/gi) ?? []).map(c => rgb(c, probe))
  const background = colour("--st-background-color", "#fff")
  const text = colour("--st-text-color", "#111")
  const dark = background[0] + background[1] + background[2] < 384
  const sequential = list("--st-chart-sequential-colors")
  const diverging = list("--st-chart-diverging-colors")
  const ramps = {
    sequential: sequential.length > 1 ? sequential : [background, text],
    diverging: diverging.length > 1 ? diverging : [[171, 84, 22], background, [37, 98, 161]],
  }
  const marks = {
    [MASKED]: mix(background, text, dark ? 0.3 : 0.2),
    [NO_KEY]: dark ? [196, 140, 20] : [240, 183, 64],
    [NAN]: dark ? [255, 79, 190] : [206, 18, 140],
    [INF]: dark ? [255, 255, 255] : [0, 0, 0],
    [BELOW]: mix(ramps.sequential[0], text, 0.08),
  }
  return {
    background: style.getPropertyValue("--st-background-color") || "#fff",
    text: style.getPropertyValue("--st-text-color") || "#111",
    primary: style.getPropertyValue("--st-primary-color") || "#06c",
    font: style.getPropertyValue("--st-font") || "sans-serif",
    ramps,
    marks,
    signature: [background, text, sequential, diverging].join("|") + style.getPropertyValue("--st-primary-color"),
  }
}

function colourTable(ramp, marks) {
  const table = new Uint32Array(65536)
  const last = ramp.length - 1
  for (let code = 0; code <= TOP; code++) {
    const at = (code / TOP) * last
    const low = Math.min(last - 1, Math.floor(at))
    table[code] = pack(mix(ramp[low], ramp[low + 1], at - low))
  }
  for (const [code, colour] of Object.entries(marks)) table[code] = pack(colour)
  return table
}

// ---- values and words ----------------------------------------------------------------------------------------------

const fill = (sentence, fields) =>
  sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole))

const visible = token => token.replaceAll("\t", "⇥").replaceAll("\n", "↵")

function valueOf(map, code) {
  const share = code / TOP
  if (!map.log) return map.low + (map.high - map.low) * share
  return 10 ** (Math.log10(map.low) + (Math.log10(map.high) - Math.log10(map.low)) * share)
}

function short(value, digits = 3) {
  if (value === 0) return "0"
  const size = Math.abs(value)
  return size >= 1e5 || size < 1e-3 ? value.toExponential(digits - 2) : String(Number(value.toPrecision(digits)))
}

function niceStep(least) {
  let step = 1
  for (let i = 0; step < least; i++) step = [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)
  return step
}

// ---- the component -------------------------------------------------------------------------------------------------

class Heatmap {
  constructor(root) {
    this.root = root
    this.parts = Object.fromEntries([...root.querySelectorAll("[data-part]")].map(e => [e.dataset.part, e]))
    this.base = this.parts.base.getContext("2d", { alpha: false })
    this.over = this.parts.over.getContext("2d")
    this.maps = []
    this.boxes = []
    this.zooms = new Map() // "rows×cols of the axes" -> window in shares of the map
    this.sharp = new Map() // map key -> the exact map of the zoomed window
    this.frames = 0
    this.hover = null
    this.listen()
  }

  render(component) {
    const bytes = component.data instanceof Uint8Array ? component.data.slice().buffer : component.data
    const frame = this.parsed(bytes)
    if (!frame) return
    const { config } = frame.header
    this.config = config
    this.words = config.words
    this.send = component.setTriggerValue
    if (this.group?.name !== config.group) this.join(globalThis.attnviz.group(config.group))
    this.group.configure(config)
    if (!this.sending) this.group.select(config.selected ?? null)
    this.parts.reset.textContent = this.words.reset_zoom
    this.parts.stage.setAttribute("aria-description", config.picks === "map" ? "" : this.words.keys_help)
    this.retheme()
    if (!this.group.pending) this.take(frame)
    else if (!this.maps.length) this.take(frame)
  }

  parsed(bytes) {
    try {
      return globalThis.attnviz.parse(bytes)
    } catch {
      this.complain(this.words?.broken ?? "The picture did not arrive whole.")
      return null
    }
  }

  join(group) {
    this.off?.forEach(off => off())
    this.group = group
    this.off = [
      group.on("frame", frame => this.take(frame)),
      group.on("select", () => this.reselect()),
      group.on("problem", sentence => this.complain(sentence)),
    ]
  }

  leave() {
    this.off?.forEach(off => off())
    this.group = null
    this.watcher?.disconnect()
    this.watcher = null
    clearTimeout(this.resting)
    clearTimeout(this.sending)
    this.sending = null
  }

  complain(sentence) {
    this.parts.problem.textContent = sentence ?? ""
  }

  // A frame to draw: of the page's run or of the live route.
  take(frame) {
    const grid = frame.header.parts[this.config.part]
    if (!grid) return
    const maps = []
    for (const map of grid.maps) {
      const end = map.offset + 2 * map.rows * map.cols
      if (end > frame.buffer.byteLength) return this.complain(this.words.broken)
      maps.push({ ...map, codes: frame.payload(map.offset, map.rows * map.cols) })
    }
    if (frame.header.config === undefined) this.complain("")
    this.maps = maps
    this.grid = grid
    this.sharp.clear()
    this.draw()
    this.parts.caption.textContent = [grid.caption, this.poolLine()].filter(Boolean).join(" · ")
    this.parts.stage.setAttribute("aria-label", grid.alt)
    this.root.dataset.params = JSON.stringify(frame.header.params)
    this.root.dataset.frame = String(++this.frames)
    this.sharpenSoon()
    this.point()
    this.reselect()
  }

  poolLine() {
    const pooled = this.maps.find(map => map.pool[0] * map.pool[1] > 1)
    if (!pooled || this.config.layout === "strip") return ""
    const word = this.words[pooled.reduce === "max" ? "pooled_max" : "pooled_mean"]
    return fill(word, { rows: pooled.pool[0], cols: pooled.pool[1] })
  }

  retheme() {
    const theme = readTheme(this.root)
    if (theme.signature === this.theme?.signature) return
    this.theme = theme
    this.tables = {
      sequential: colourTable(theme.ramps.sequential, theme.marks),
      diverging: colourTable(theme.ramps.diverging, theme.marks),
    }
    if (this.maps.length) {
      this.draw()
      this.mark()
    }
  }

  // ---- layout: where each map stands, in CSS pixels ----

  arrange() {
    const width = Math.max(120, this.parts.stage.clientWidth)
    const strip = this.config.layout === "strip"
    const single = this.maps.length === 1 && !strip
    const bar = strip ? 0 : BAR
    const font = `${LABEL}px ${this.theme.font}`
    this.base.font = font
    const left = strip ? 0 : single ? this.rowLabelWidth(this.maps[0]) + LABEL + 10 : LABEL + 8
    const titles = LABEL + 7
    const room = { width: width - left - bar, height: this.config.height }
    const bottom = strip ? 0 : single ? this.colLabelHeight(this.maps[0], room.width) + LABEL + 10 : LABEL + 8
    room.height -= bottom
    const { columns, w, h } = this.pack(room, titles, strip)
    const rows = Math.ceil(this.maps.length / columns)
    this.boxes = this.maps.map((map, index) => ({
      x: left + (index % columns) * (w + GAP),
      y: titles + Math.floor(index / columns) * (h + titles + GAP / 2),
      w,
      h,
    }))
    const inner = { w: columns * w + (columns - 1) * GAP, h: rows * (h + titles) + (rows - 1) * (GAP / 2) }
    this.frameBox = { left, top: titles, right: left + inner.w, bottom: inner.h, height: inner.h + bottom, width }
    this.single = single
  }

  // The number of columns that makes the maps largest, and the size of one.
  pack(room, titles, strip) {
    const count = this.maps.length
    const shape = map => (map.row_axis.length / map.col_axis.length)
    const aspect = strip || count === 0 ? 1 : Math.min(2.5, Math.max(0.3, shape(this.maps[0])))
    let best = { columns: 1, w: 0, h: 0 }
    for (let columns = 1; columns <= count; columns++) {
      const rows = Math.ceil(count / columns)
      const w = (room.width - (columns - 1) * GAP) / columns
      const h = (room.height - rows * titles - (rows - 1) * (GAP / 2)) / rows
      const fit = Math.max(8, Math.floor(Math.min(w, h / aspect)))
      if (fit > best.w) best = { columns, w: fit, h: Math.max(8, Math.floor(fit * aspect)) }
    }
    return best
  }

  label(axis, index) {
    return axis.tokens ? visible(axis.tokens[index] ?? "") : String(axis.start + index)
  }

  measured(text) {
    return this.base.measureText(text).width
  }

  widest(axis, step) {
    let most = 0
    for (let i = 0; i < axis.length; i += step) most = Math.max(most, this.measured(this.label(axis, i)))
    return Math.min(LONGEST_LABEL, most)
  }

  rowLabelWidth(map) {
    return this.widest(map.row_axis, Math.max(1, Math.floor(map.row_axis.length / 64)))
  }

  colLabelHeight(map, width) {
    const axis = map.col_axis
    const most = this.widest(axis, Math.max(1, Math.floor(axis.length / 64)))
    const cell = width / axis.length
    this.turned = axis.tokens !== null && most + 6 > cell
    return this.turned ? most + 4 : LABEL + 4
  }

  // The part of a map on screen, as shares of it; maps of one shape zoom together.
  shapeKey(map) {
    return `${map.row_axis.dim}${map.row_axis.length}×${map.col_axis.dim}${map.col_axis.length}`
  }

  window(map) {
    return this.zooms.get(this.shapeKey(map)) ?? { top: 0, bottom: map.rows, left: 0, right: map.cols }
  }

  // What stands in a map's box: the map or its sharper part, and the window of its cells.
  source(map) {
    const sharp = this.sharp.get(map.key)
    if (sharp) return { map: sharp, top: 0, bottom: sharp.rows, left: 0, right: sharp.cols }
    return { map, ...this.window(map) }
  }

  // ---- drawing ----

  size(canvas, width, height) {
    const ratio = devicePixelRatio || 1
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)]
    if (canvas.width !== w || canvas.height !== h) {
      canvas.width = w
      canvas.height = h
      canvas.style.width = `${width}px`
      canvas.style.height = `${height}px`
    }
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0)
  }

  draw() {
    if (!this.theme || !this.maps.length) return
    this.arrange()
    const { width, height } = this.frameBox
    this.size(this.parts.base, width, height)
    this.size(this.parts.over, width, height)
    this.parts.stage.style.height = `${height}px`
    const { base } = this
    base.fillStyle = this.theme.background
    base.fillRect(0, 0, width, height)
    this.labels = []
    this.maps.forEach((map, index) => this.drawMap(map, this.boxes[index]))
    if (this.config.layout !== "strip") {
      this.drawAxisTitles()
      this.drawBar()
    }
    this.drawLegend()
    this.parts.reset.hidden = this.zooms.size === 0
    this.root.attnvizLayout = { maps: this.boxes.map((b, i) => ({ key: this.maps[i].key, ...b })), labels: this.labels }
  }

  drawMap(map, box) {
    const { base } = this
    const { map: shown, top, bottom, left, right } = this.source(map)
    const picture = this.paint(shown)
    const shrinking = right - left > box.w * devicePixelRatio || bottom - top > box.h * devicePixelRatio
    base.imageSmoothingEnabled = shrinking
    base.drawImage(picture, left, top, right - left, bottom - top, box.x, box.y, box.w, box.h)
    base.strokeStyle = `color-mix(in srgb, ${this.theme.text} 45%, transparent)`
    base.lineWidth = 1
    base.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1)
    this.text(map.title, box.x, box.y - 6, { most: box.w, bold: this.config.chosen === map.key })
    if (this.config.layout === "strip") return
    if (this.single || box.w >= 170) this.drawTicks(map, box)
  }

  // Codes to pixels, on a canvas of the map's own size.
  paint(map) {
    map.canvas ??= new OffscreenCanvas(map.cols, map.rows)
    if (map.painted === this.theme) return map.canvas
    const context = map.canvas.getContext("2d")
    const image = context.createImageData(map.cols, map.rows)
    const pixels = new Uint32Array(image.data.buffer)
    const table = this.tables[map.palette]
    const { codes } = map
    for (let i = 0; i < pixels.length; i++) pixels[i] = table[codes[i]]
    context.putImageData(image, 0, 0)
    map.painted = this.theme
    return map.canvas
  }

  text(words, x, y, { align = "left", baseline = "alphabetic", most = Infinity, bold = false, turn = 0, note } = {}) {
    const { base } = this
    base.font = `${bold ? "bold " : ""}${LABEL}px ${this.theme.font}`
    base.fillStyle = this.theme.text
    base.textAlign = align
    base.textBaseline = baseline
    const fitted = this.fitted(words, most)
    base.save()
    base.translate(x, y)
    if (turn) base.rotate(turn)
    base.fillText(fitted, 0, 0)
    base.restore()
    if (note) this.labels.push({ ...note, text: fitted, length: this.measured(fitted), x, y, turned: turn !== 0 })
    return fitted
  }

  fitted(words, most) {
    if (this.measured(words) <= most) return words
    const glyphs = [...words]
    while (glyphs.length > 1 && this.measured(`${glyphs.join("")}…`) > most) glyphs.pop()
    return this.measured(`${glyphs.join("")}…`) <= most ? `${glyphs.join("")}…` : ""
  }

  drawTicks(map, box) {
    const { map: shown, top, bottom, left, right } = this.source(map)
    const spot = (axis, pool, from, to, length) => {
      // Positions in tokens, whatever the pooling, so that labels keep their place when a sharper map comes in.
      const first = from * pool
      const last = Math.min(axis.length, to * pool)
      return { first, last, size: length / (last - first) }
    }
    const rows = spot(shown.row_axis, shown.pool[0], top, bottom, box.h)
    const cols = spot(shown.col_axis, shown.pool[1], left, right, box.w)
    const { row_axis: rowAxis, col_axis: colAxis } = shown
    const tokens = this.single
    const rowStep = niceStep((LABEL + 2) / rows.size)
    const room = tokens ? box.x - LABEL - 12 : 0
    if (tokens) {
      for (let i = Math.ceil(rows.first / rowStep) * rowStep; i < rows.last; i += rowStep) {
        const y = box.y + (i - rows.first + 0.5) * rows.size
        this.text(this.label(rowAxis, i), box.x - 5, y, {
          align: "right", baseline: "middle", most: room, note: { axis: "row", index: rowAxis.start + i },
        })
      }
      const width = this.turned ? LABEL + 2 : this.widest(colAxis, Math.max(1, Math.floor(colAxis.length / 64))) + 8
      const colStep = niceStep(width / cols.size)
      for (let i = Math.ceil(cols.first / colStep) * colStep; i < cols.last; i += colStep) {
        const x = box.x + (i - cols.first + 0.5) * cols.size
        this.text(this.label(colAxis, i), x, box.y + box.h + 5, {
          align: this.turned ? "right" : "center",
          baseline: this.turned ? "middle" : "top",
          turn: this.turned ? -Math.PI / 2 : 0,
          most: this.turned ? LONGEST_LABEL : Infinity,
          note: { axis: "col", index: colAxis.start + i },
        })
      }
    }
  }

  drawAxisTitles() {
    const { left, top, right, bottom, height } = this.frameBox
    const [map] = this.maps
    const middle = (top + bottom) / 2
    this.text(map.row_axis.label, LABEL / 2 + 2, middle, { align: "center", baseline: "middle", turn: -Math.PI / 2 })
    this.text(map.col_axis.label, (left + right) / 2, height - 3, { align: "center", baseline: "bottom" })
  }

  drawBar() {
    const { base } = this
    const { right, top, bottom } = this.frameBox
    const [map] = this.maps
    const own = this.maps.some(other => other.low !== map.low || other.high !== map.high)
    const x = right + 14
    const [y, h] = [top, Math.max(40, bottom - top)]
    const ramp = this.theme.ramps[map.palette]
    const gradient = base.createLinearGradient(0, y + h, 0, y)
    ramp.forEach((colour, i) => gradient.addColorStop(i / (ramp.length - 1), `rgb(${colour.join()})`))
    base.fillStyle = gradient
    base.fillRect(x, y, 14, h)
    base.strokeStyle = `color-mix(in srgb, ${this.theme.text} 45%, transparent)`
    base.strokeRect(x - 0.5, y - 0.5, 15, h + 1)
    const ticks = own ? [[0, this.words.lowest], [0.5, this.words.own_range], [1, this.words.highest]] : this.barTicks(map, h)
    for (const [share, words] of ticks) {
      const at = Math.min(y + h - 6, Math.max(y + 6, y + h * (1 - share)))
      this.text(words, x + 19, at, { baseline: "middle", most: BAR - 34, note: { axis: "bar", index: share } })
    }
  }

  barTicks(map, height) {
    const span = map.high - map.low
    if (!(span > 0)) return [[0.5, short(map.low)]]
    if (map.log) {
      const [first, last] = [Math.log10(map.low), Math.log10(map.high)]
      const every = Math.max(1, Math.ceil(((last - first) * 22) / height))
      const ticks = []
      for (let d = Math.ceil(first); d <= last; d += every) ticks.push([(d - first) / (last - first), `1e${d}`])
      return ticks.length > 1 ? ticks : [[0, short(map.low)], [1, short(map.high)]]
    }
    return [0, 0.25, 0.5, 0.75, 1].map(share => [share, short(map.low + span * share)])
  }

  drawLegend() {
    const there = new Set()
    for (const map of this.maps) {
      if (map.masked) there.add(MASKED)
      if (map.no_key) there.add(NO_KEY)
      if (map.nan) there.add(NAN)
      if (map.inf) there.add(INF)
      if (map.below) there.add(BELOW)
    }
    if (this.config.layout === "strip") there.clear()
    const names = { [MASKED]: "masked", [NO_KEY]: "no_key", [NAN]: "nan", [INF]: "inf", [BELOW]: "below" }
    this.parts.legend.replaceChildren(
      ...[...there].map(code => {
        const entry = document.createElement("span")
        const swatch = document.createElement("i")
        swatch.style.background = `rgb(${this.theme.marks[code].join()})`
        entry.append(swatch, this.words[names[code]])
        return entry
      }),
    )
  }

  // ---- pointing, selecting, zooming ----

  listen() {
    const { stage, reset } = this.parts
    stage.addEventListener("pointermove", event => this.move(event))
    stage.addEventListener("pointerleave", () => this.unpoint())
    stage.addEventListener("pointerdown", event => this.press(event))
    stage.addEventListener("pointerup", event => this.lift(event))
    stage.addEventListener("pointercancel", () => this.dropBand())
    stage.addEventListener("dblclick", () => this.unzoom())
    stage.addEventListener("keydown", event => this.key(event))
    reset.addEventListener("click", () => this.unzoom())
    this.observer = new ResizeObserver(() => {
      if (this.parts.stage.clientWidth !== this.frameBox?.width) {
        this.draw()
        this.mark()
      }
    })
    this.observer.observe(stage)
  }

  // The cell under a point: its map, box, indices of the drawn cell, and the tokens it stands for.
  at(x, y) {
    const index = this.boxes.findIndex(b => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h)
    if (index < 0) return null
    const [map, box] = [this.maps[index], this.boxes[index]]
    const { map: shown, top, bottom, left, right } = this.source(map)
    const r = Math.min(bottom - 1, Math.floor(top + ((y - box.y) / box.h) * (bottom - top)))
    const c = Math.min(right - 1, Math.floor(left + ((x - box.x) / box.w) * (right - left)))
    const code = shown.codes[r * shown.cols + c]
    const row = this.span(shown.row_axis, shown.pool[0], r)
    const col = this.span(shown.col_axis, shown.pool[1], c)
    return { map, shown, box, r, c, code, row, col }
  }

  span(axis, pool, cell) {
    const first = cell * pool
    const count = Math.min(pool, axis.length - first)
    return { axis, first: axis.start + first, last: axis.start + first + count - 1, token: axis.tokens?.[first] ?? null }
  }

  place(event) {
    const box = this.parts.stage.getBoundingClientRect()
    return [event.clientX - box.left, event.clientY - box.top]
  }

  move(event) {
    const [x, y] = this.place(event)
    if (this.band) {
      this.band.to = [x, y]
      if (Math.hypot(x - this.band.from[0], y - this.band.from[1]) > DRAG && event.pointerType !== "touch") {
        this.band.moved = true
      }
      if (this.band.moved) {
        this.hideTip()
        return this.mark()
      }
    }
    if (event.pointerType === "touch") return
    this.hover = [x, y]
    this.point()
  }

  unpoint() {
    this.hover = null
    this.hideTip()
    this.mark()
  }

  hideTip() {
    clearTimeout(this.resting)
    this.parts.tip.hidden = true
  }

  // Show what is under the pointer at once, and its exact value once the pointer rests.
  point() {
    if (!this.hover) return
    clearTimeout(this.resting)
    const cell = this.at(...this.hover)
    this.mark()
    if (!cell) return this.hideTip()
    this.tip(cell, this.spoken(cell))
    if (cell.code <= BELOW && this.exact(cell)) {
      this.resting = setTimeout(async () => {
        const got = await this.group?.cell(this.config.part, cell.map.key, cell.row.first, cell.col.first)
        const now = this.hover && this.at(...this.hover)
        if (got?.value && now?.map === cell.map && now.r === cell.r && now.c === cell.c) this.tip(cell, got.value, true)
      }, REST_MS)
    }
  }

  exact(cell) {
    return cell.shown.pool[0] * cell.shown.pool[1] === 1
  }

  spoken({ shown, code, row }) {
    if (code === MASKED) return this.words.masked
    if (code === NO_KEY) return fill(this.words.no_key_row, { row: row.first })
    if (code === NAN) return "NaN"
    if (code === INF) return this.words.inf
    if (code === BELOW) return this.words.below
    return short(valueOf(shown, code), 4)
  }

  name({ axis, first, last, token }) {
    const place = first === last ? first : `${first}–${last}`
    return token === null || first !== last ? `${axis.label} ${place}` : `${axis.label} ${place}  “${visible(token)}”`
  }

  tip(cell, value, exact = false) {
    const { tip, stage } = this.parts
    const lines = [cell.map.title, this.name(cell.row), this.name(cell.col)]
    const parts = lines.map(line => {
      const element = document.createElement("div")
      element.textContent = line
      return element
    })
    const strong = document.createElement("strong")
    strong.textContent = value
    if (exact) strong.dataset.exact = "true"
    parts.push(strong)
    if (!this.exact(cell) && cell.code <= TOP) {
      const note = document.createElement("div")
      const count = (cell.row.last - cell.row.first + 1) * (cell.col.last - cell.col.first + 1)
      note.textContent = fill(this.words[cell.shown.reduce === "max" ? "max_of" : "mean_of"], { count })
      parts.push(note)
    }
    tip.replaceChildren(...parts)
    tip.hidden = false
    const [x, y] = this.hover ?? [cell.box.x, cell.box.y]
    const beside = x + 16 + tip.offsetWidth <= stage.clientWidth ? x + 16 : Math.max(0, x - 16 - tip.offsetWidth)
    tip.style.left = `${beside}px`
    tip.style.top = `${Math.max(0, Math.min(y + 16, stage.clientHeight - tip.offsetHeight))}px`
  }

  press(event) {
    if (event.button !== 0) return
    const [x, y] = this.place(event)
    const cell = this.at(x, y)
    this.band = cell && { from: [x, y], to: [x, y], box: cell.box, map: cell.map, moved: false }
    if (cell && event.pointerType !== "touch") this.parts.stage.setPointerCapture(event.pointerId)
  }

  dropBand() {
    this.band = null
    this.mark()
  }

  lift(event) {
    const { band } = this
    this.band = null
    if (!band) return
    if (band.moved) return this.zoomTo(band)
    const cell = this.at(...this.place(event))
    if (cell && event.detail < 2) this.choose(cell)
  }

  choose(cell) {
    this.parts.stage.focus({ preventScroll: true })
    if (this.config.picks === "map") return this.send("select", { map: cell.map.key, at: Date.now() })
    const chosen = this.selectionOf(cell.map, cell.row.first, cell.col.first)
    const same = this.group.selection && JSON.stringify(chosen) === JSON.stringify(this.group.selection)
    // While zoomed, a second click within a moment means "reset the zoom": wait for it before telling the page.
    this.select(same ? null : chosen, this.zooms.size ? 280 : 0)
  }

  selectionOf(map, row, col) {
    return { map: map.key, [map.row_axis.dim]: row, [map.col_axis.dim]: col }
  }

  select(selection, delay) {
    this.before = this.group.selection
    clearTimeout(this.sending)
    this.sending = setTimeout(() => {
      this.sending = null
      this.send("select", { ...(selection ?? { none: true }), at: Date.now() })
    }, delay)
    this.group.select(selection)
  }

  selectedHere() {
    const chosen = this.group?.selection
    return chosen ? this.maps.find(map => map.key === chosen.map) : undefined
  }

  key(event) {
    if (event.key === "Escape") {
      if (this.config.picks !== "map" && this.group.selection) this.select(null, 0)
      return
    }
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
    if (!by || !this.maps.length || this.config.picks === "map") return
    event.preventDefault()
    const map = this.selectedHere() ?? this.maps[0]
    const { row_axis: rows, col_axis: cols } = map
    const chosen = this.selectedHere() ? this.group.selection : null
    const step = (axis, pool, sign) => {
      const now = chosen?.[axis.dim]
      if (now === undefined) return axis.start
      return Math.min(axis.start + axis.length - 1, Math.max(axis.start, now + sign * pool))
    }
    this.select(this.selectionOf(map, step(rows, map.pool[0], by[0]), step(cols, map.pool[1], by[1])), SETTLE_MS)
  }

  reselect() {
    this.mark()
    const map = this.selectedHere()
    const chosen = this.group?.selection
    const line = this.parts.chosen
    if (!map || chosen?.[map.row_axis.dim] === undefined || chosen?.[map.col_axis.dim] === undefined) {
      line.textContent = ""
      return
    }
    const [row, col] = [chosen[map.row_axis.dim], chosen[map.col_axis.dim]]
    const r = Math.floor((row - map.row_axis.start) / map.pool[0])
    const c = Math.floor((col - map.col_axis.start) / map.pool[1])
    if (r < 0 || c < 0 || r >= map.rows || c >= map.cols) return
    const code = map.codes[r * map.cols + c]
    const one = (axis, index) => ({ axis, first: index, last: index, token: axis.tokens?.[index - axis.start] ?? null })
    const ends = [one(map.row_axis, row), one(map.col_axis, col)]
    const say = value => {
      line.textContent = [map.title, ...ends.map(end => this.name(end)), value].join(" · ")
    }
    const pooled = map.pool[0] * map.pool[1] > 1
    say(pooled ? "…" : this.spoken({ shown: map, code, row: ends[0] }))
    clearTimeout(this.asking)
    if (code > BELOW && !pooled) return
    this.asking = setTimeout(async () => {
      const got = await this.group?.cell(this.config.part, map.key, row, col)
      const still = this.group?.selection === chosen && this.maps.includes(map)
      if (got && still) say(got.value || this.words[got.state === 2 ? "no_key" : "masked"])
    }, REST_MS)
  }

  zoomTo({ from, to, box, map }) {
    const { map: shown, top, bottom, left, right } = this.source(map)
    const share = (value, start, size) => Math.min(1, Math.max(0, (value - start) / size))
    const cells = (a, b, start, size, low, high) => {
      const [first, last] = [share(Math.min(a, b), start, size), share(Math.max(a, b), start, size)]
      const begin = Math.floor(low + first * (high - low))
      return [begin, Math.max(begin + 1, Math.ceil(low + last * (high - low)))]
    }
    const rows = cells(from[1], to[1], box.y, box.h, top, bottom)
    const cols = cells(from[0], to[0], box.x, box.w, left, right)
    // A sharper part has cells of its own; the zoom is kept in those of the whole map.
    const whole = (span, axis, pool, base) => {
      const offset = axis.start - base.axis.start
      return [Math.floor((offset + span[0] * pool) / base.pool), Math.ceil((offset + span[1] * pool) / base.pool)]
    }
    const r = whole(rows, shown.row_axis, shown.pool[0], { axis: map.row_axis, pool: map.pool[0] })
    const c = whole(cols, shown.col_axis, shown.pool[1], { axis: map.col_axis, pool: map.pool[1] })
    this.zooms.set(this.shapeKey(map), {
      top: r[0], bottom: Math.min(map.rows, r[1]), left: c[0], right: Math.min(map.cols, c[1]),
    })
    this.rezoom()
  }

  unzoom() {
    if (!this.zooms.size) return
    if (this.sending) {
      clearTimeout(this.sending)
      this.sending = null
      this.group.select(this.before)
    }
    this.zooms.clear()
    this.rezoom()
  }

  rezoom() {
    this.sharp.clear()
    this.draw()
    this.mark()
    this.root.dataset.zoomed = String(this.zooms.size > 0)
    this.sharpenSoon()
  }

  // A zoomed map of pooled cells is asked for again, exact as far as its size allows.
  sharpenSoon() {
    for (const shape of [...this.zooms.keys()]) {
      if (!this.maps.some(map => this.shapeKey(map) === shape)) this.zooms.delete(shape)
    }
    this.root.dataset.zoomed = String(this.zooms.size > 0)
    clearTimeout(this.sharpening)
    const map = this.maps.find(m => this.zooms.has(this.shapeKey(m)) && m.pool[0] * m.pool[1] > 1)
    if (map) this.sharpening = setTimeout(() => this.sharpen(map), SETTLE_MS)
  }

  async sharpen(map) {
    const seen = this.frames
    const zoom = this.window(map)
    const edge = (cell, axis, pool) => axis.start + Math.min(axis.length, cell * pool)
    const rows = [edge(zoom.top, map.row_axis, map.pool[0]), edge(zoom.bottom, map.row_axis, map.pool[0])]
    const cols = [edge(zoom.left, map.col_axis, map.pool[1]), edge(zoom.right, map.col_axis, map.pool[1])]
    const bytes = await this.group?.region(this.config.part, map.key, rows, cols)
    if (!bytes || seen !== this.frames || this.window(map) !== zoom) return
    const frame = this.parsed(bytes)
    const grid = frame?.header.parts[this.config.part]
    if (!grid) return
    for (const part of grid.maps) {
      const match = this.maps.find(other => other.key === part.key)
      if (match) this.sharp.set(part.key, { ...part, low: match.low, high: match.high, codes: this.rescaled(frame, part, match) })
    }
    this.draw()
    this.mark()
    this.root.dataset.sharp = String(++this.sharpened || (this.sharpened = 1))
  }

  // The part came with limits of its own; its codes are put on the whole map's, so that colours mean the same.
  rescaled(frame, part, whole) {
    const codes = frame.payload(part.offset, part.rows * part.cols)
    if (part.low === whole.low && part.high === whole.high) return codes
    const moved = new Uint16Array(codes.length)
    const put = whole.log ? Math.log10 : value => value
    const [low, reach] = [put(whole.low), put(whole.high) - put(whole.low)]
    for (let i = 0; i < codes.length; i++) {
      const share = (put(valueOf(part, codes[i])) - low) / reach
      moved[i] = codes[i] > TOP ? codes[i] : Math.round(Math.min(1, Math.max(0, share)) * TOP)
    }
    return moved
  }

  // ---- marks over the maps: crosshair, selection, rubber band ----

  mark() {
    const { over } = this
    if (!this.frameBox || !this.theme) return
    over.clearRect(0, 0, this.frameBox.width, this.frameBox.height)
    const chosen = this.group?.selection
    if (chosen) {
      this.maps.forEach((map, index) => {
        this.bars(map, this.boxes[index], chosen[map.row_axis.dim], chosen[map.col_axis.dim], true)
      })
    }
    const cell = this.hover && !this.band?.moved ? this.at(...this.hover) : null
    if (cell) {
      this.maps.forEach((map, index) => {
        const alike = this.shapeKey(map) === this.shapeKey(cell.map)
        if (alike) this.bars(map, this.boxes[index], cell.row.first, cell.col.first, false)
      })
    }
    if (this.band?.moved) {
      const { from, to, box } = this.band
      const clamp = (v, low, size) => Math.min(low + size, Math.max(low, v))
      const [x0, x1] = [clamp(from[0], box.x, box.w), clamp(to[0], box.x, box.w)]
      const [y0, y1] = [clamp(from[1], box.y, box.h), clamp(to[1], box.y, box.h)]
      over.fillStyle = `color-mix(in srgb, ${this.theme.primary} 25%, transparent)`
      over.strokeStyle = this.theme.primary
      over.lineWidth = 2
      over.fillRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0))
      over.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0))
    }
  }

  // Outlines of one row and one column of a map, either may be missing; where both meet, the cell.
  bars(map, box, row, col, firm) {
    const { map: shown, top, bottom, left, right } = this.source(map)
    const strip = (axis, pool, index, from, to, size) => {
      if (index === undefined) return null
      const cell = Math.floor((index - axis.start) / pool)
      if (cell < from || cell >= to) return null
      return [((cell - from) / (to - from)) * size, size / (to - from)]
    }
    const r = strip(shown.row_axis, shown.pool[0], row, top, bottom, box.h)
    const c = strip(shown.col_axis, shown.pool[1], col, left, right, box.w)
    const outline = (x, y, w, h) => this.outline(box.x + x, box.y + y, Math.max(2, w), Math.max(2, h), firm)
    if (r) outline(0, r[0], box.w, r[1])
    if (c && (col !== undefined && (firm ? row !== undefined || !r : true))) outline(c[0], 0, c[1], box.h)
    if (r && c && firm) this.outline(box.x + c[0], box.y + r[0], Math.max(3, c[1]), Math.max(3, r[1]), true, 3)
  }

  // Two strokes, background and colour, so that the line shows on any cell.
  outline(x, y, w, h, firm, width = 1.5) {
    const { over } = this
    over.strokeStyle = this.theme.background
    over.lineWidth = width + 1.5
    over.globalAlpha = firm ? 0.9 : 0.5
    over.strokeRect(x, y, w, h)
    over.strokeStyle = firm ? "#e4572e" : this.theme.text
    over.lineWidth = width
    over.globalAlpha = firm ? 1 : 0.8
    over.strokeRect(x, y, w, h)
    over.globalAlpha = 1
  }
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Heatmap(root))
  const heatmap = instances.get(root)
  heatmap.render(component)
  return () => heatmap.leave()
}
