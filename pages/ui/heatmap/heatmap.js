// The component: draws a frame's maps on one canvas and lets people point at, select and zoom into them. It follows its
// group's live frames without a rerun of the page; the page hears of a selection only.
const DRAG = 6
const REST_MS = 60
const SETTLE_MS = 160 // before the page hears of a key press, and before a sharper picture is asked for
const DOUBLE_MS = 300
const RETRY_MS = 200
const MOST_SIGNS = 3000

const instances = new WeakMap()

const fill = (sentence, fields) =>
  sentence.replace(/\{(\w+)\}/g, (whole, name) => (name in fields ? String(fields[name]) : whole))

function element(kind, text, name) {
  const made = document.createElement(kind)
  made.textContent = text
  if (name) made.className = name
  return made
}

const shapeOf = ({ row_axis: r, col_axis: c }) => `${r.dim}${r.start}+${r.length}×${c.dim}${c.start}+${c.length}`
const pooled = map => map.pool[0] * map.pool[1] > 1

// The tokens that one drawn cell covers along an axis.
function span(axis, pool, cell) {
  const first = cell * pool
  const last = Math.min(first + pool, axis.length) - 1
  const names = axis.tokens ? [axis.tokens[first] ?? "", axis.tokens[last] ?? ""] : null
  return { axis, first: axis.start + first, last: axis.start + last, names }
}

const one = (axis, index) => {
  const name = axis.tokens?.[index - axis.start]
  return { axis, first: index, last: index, names: name === undefined ? null : [name, name] }
}

class Heatmap {
  constructor(root) {
    this.root = root
    this.parts = Object.fromEntries([...root.querySelectorAll("[data-part]")].map(e => [e.dataset.part, e]))
    this.base = this.parts.base.getContext("2d", { alpha: false })
    this.over = this.parts.over.getContext("2d")
    this.maps = []
    this.slots = [] // a canvas per map, kept from frame to frame
    this.zooms = new Map() // shape → window in tokens; maps of one shape zoom together
    this.sharp = new Map() // map key → the exact part of a pooled map that fills the window
    this.exact = new Map() // answers about this frame's cells
    this.frames = 0
    this.hover = null
    this.redraw = () => {
      this.ruler = null
      this.draw()
    }
    this.listen()
  }

  // ---- what the page and the live route send ----

  render({ data, setTriggerValue }) {
    this.send = setTriggerValue
    const bytes = data instanceof Uint8Array ? data : new Uint8Array(data)
    const frame = this.parsed(bytes.byteLength === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer)
    if (!frame) return
    const { config } = frame.header
    const fresh = config.run !== this.config?.run
    this.config = config
    this.words = config.words
    // A page that knows of a live route leaves the cells of a large picture to it.
    this.own = config.hollow ? null : frame
    this.join(globalThis.attnviz.group(config.group))
    this.group.configure(config)
    // What the page has not heard of yet stands: an answer to an earlier click must not take it back.
    if (config.seen >= (this.group.selectedAt ?? 0)) this.group.select(config.selected)
    this.parts.reset.textContent = this.words.reset_zoom
    const { stage } = this.parts
    if (this.words.keys_help && config.picks === "cell") stage.setAttribute("aria-description", this.words.keys_help)
    this.root.dataset.picks = config.picks
    this.root.style.setProperty("--scale", config.scale)
    this.retheme()
    if (!this.maps.length || (fresh && !this.group.pending)) this.takeOwn()
  }

  takeOwn() {
    if (this.own) this.take(this.own)
    else this.group.refresh()
  }

  join(group) {
    if (this.group === group) return
    this.leave()
    this.group = group
    this.offs = [
      group.on("frame", frame => this.take(frame)),
      group.on("settle", run => this.config.run >= run && this.takeOwn()),
      group.on("live", live => !live && !this.own && this.send("lost", Date.now())),
      group.on("select", () => this.reselect()),
      group.on("problem", sentence => this.complain(sentence)),
    ]
    this.observer.observe(this.parts.stage)
    document.fonts.addEventListener("loadingdone", this.redraw)
  }

  leave() {
    this.offs?.forEach(off => off())
    this.group = null
    this.observer.disconnect()
    document.fonts.removeEventListener("loadingdone", this.redraw)
    for (const timer of [this.resting, this.sending, this.asking, this.sharpening]) clearTimeout(timer)
  }

  parsed(buffer) {
    try {
      return globalThis.attnviz.parse(buffer)
    } catch {
      this.complain(this.words?.broken)
      return null
    }
  }

  complain(sentence) {
    this.parts.problem.textContent = this.config?.picks === "map" ? "" : (sentence ?? "")
  }

  // The maps of a frame with their codes; null when the frame does not hold what its header says.
  read(frame, grid) {
    const { tokens } = frame.header
    const named = axis => ({ ...axis, tokens: axis.tokens === null ? null : tokens[axis.tokens] })
    try {
      return grid.maps.map(map => ({
        ...map,
        row_axis: named(map.row_axis),
        col_axis: named(map.col_axis),
        codes: frame.payload(map.offset, map.rows * map.cols),
      }))
    } catch {
      return null
    }
  }

  take(frame) {
    const grid = frame.header.parts?.[this.config.part]
    if (!grid) return
    const maps = this.read(frame, grid)
    if (!maps) return this.complain(this.words.broken)
    this.complain("")
    this.maps = maps
    this.grid = grid
    this.sharp.clear()
    this.exact = new Map()
    for (const shape of this.zooms.keys()) if (!maps.some(map => shapeOf(map) === shape)) this.zooms.delete(shape)
    this.frames += 1
    this.params = frame.header.params
    this.draw()
    this.caption()
    this.sharpenSoon()
    if (this.hover) this.point()
    this.reselect()
  }

  caption() {
    const lines = [this.grid.caption]
    const map = this.maps.find(pooled)
    if (map && !this.strip) {
      const word = this.words[map.reduce === "max" ? "pooled_max" : "pooled_mean"]
      lines.push(fill(word, { rows: map.pool[0], cols: map.pool[1] }))
    }
    if (!this.maps.length) lines.push(this.words.empty)
    this.parts.caption.textContent = lines.filter(Boolean).join(" · ")
    this.parts.stage.setAttribute("aria-label", this.grid.alt || this.parts.caption.textContent)
  }

  get strip() {
    return this.config.layout === "strip"
  }

  // ---- drawing ----

  retheme() {
    const raw = rawTheme(this.root)
    const signature = JSON.stringify(raw)
    if (signature === this.signature) return
    this.signature = signature
    this.theme = readTheme(raw)
    this.tables = {
      sequential: colourTable(this.theme.ramps.sequential, this.theme.marks),
      diverging: colourTable(this.theme.ramps.diverging, this.theme.marks),
    }
    this.sharp.forEach(part => (part.table = undefined))
    this.patterns = null
    this.redraw()
  }

  size(canvas, width, height, ratio) {
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
    if (!this.theme || !this.grid) return
    const { stage } = this.parts
    const width = stage.clientWidth
    if (!width) return // not laid out yet, or in a closed tab: the observer draws it when there is room
    const ratio = devicePixelRatio || 1
    const em = Math.max(13, 0.8125 * this.theme.em) * this.config.scale
    this.ruler ??= new Ruler(this.base, `${em}px ${this.theme.font}`)
    if (this.ratio !== ratio) this.patterns = null
    Object.assign(this, { ratio, em, width, labels: [] })
    const { maps, ruler, strip } = this
    this.layout = maps.length
      ? arrange({ maps, width, height: this.config.height, em, ruler, strip, view: this.window(maps[0]) })
      : { boxes: [], height: 0, frame: { right: width, top: 0 } }
    const { boxes, height } = this.layout
    this.size(this.parts.base, width, height, ratio)
    this.size(this.parts.over, width, height, ratio)
    stage.style.height = `${height}px`
    const { base } = this
    base.fillStyle = css(this.theme.background)
    base.fillRect(0, 0, width, height)
    const fits = this.maps.every((map, i) => this.ruler.width(map.title) <= boxes[i].slot)
    const titles = this.maps.map(map => map.title)
    this.titles = fits ? titles : shortTitles(titles)
    this.maps.forEach((map, i) => this.drawMap(map, boxes[i], i))
    if (!this.strip && this.maps.length) {
      this.drawAxisTitles()
      this.drawBar()
    }
    this.drawLegend()
    const { frame } = this.layout
    const used = frame.narrow === false && !this.strip ? frame.right + BAR + 16 + 4 * em : width
    this.parts.reset.style.right = `${Math.max(0, width - used)}px`
    this.parts.reset.hidden = this.zooms.size === 0
    this.root.dataset.zoomed = String(this.zooms.size > 0)
    this.root.attnvizLayout = {
      maps: boxes.map(({ x, y, w, h }, i) => ({ key: this.maps[i].key, x, y, w, h })),
      labels: this.labels,
    }
    this.mark()
    // Only now: whoever waits for a picture finds it painted.
    this.root.dataset.params = JSON.stringify(this.params)
    if (this.root.dataset.frame !== String(this.frames)) this.root.dataset.frame = String(this.frames)
  }

  // The window on a map in tokens, absolute.
  window(map) {
    const { row_axis: r, col_axis: c } = map
    const whole = { top: r.start, bottom: r.start + r.length, left: c.start, right: c.start + c.length }
    return this.zooms.get(shapeOf(map)) ?? whole
  }

  // What stands in a map's box: the map or its exact part, and the window in cells of it.
  source(map) {
    const shown = this.sharp.get(map.key) ?? map
    const { top, bottom, left, right } = this.window(map)
    const row = index => (index - shown.row_axis.start) / shown.pool[0]
    const col = index => (index - shown.col_axis.start) / shown.pool[1]
    return { shown, top: row(top), bottom: row(bottom), left: col(left), right: col(right) }
  }

  drawMap(map, box, i) {
    const { base, ratio, theme } = this
    const { shown, ...view } = this.source(map)
    const device = v => Math.round(v * ratio)
    const [x, y] = [device(box.x), device(box.y)]
    const [w, h] = [device(box.x + box.w) - x, device(box.y + box.h) - y]
    shown.table ??= shown === map ? this.tables[map.palette] : translatedTable(this.tables[map.palette], shown, map)
    const table = shown === map ? this.tables[map.palette] : shown.table
    this.slots[i] ??= {}
    const from = paint(this.slots[i], shown, view, { w, h }, table)
    base.setTransform(1, 0, 0, 1, 0, 0)
    if (map.masked || map.no_key) this.drawHatches(shown, view, { x, y, w, h })
    base.imageSmoothingEnabled = false
    base.drawImage(from.canvas, from.x, from.y, from.w, from.h, x, y, w, h)
    base.setTransform(ratio, 0, 0, ratio, 0, 0)
    if (map.nan || map.inf) this.drawSigns(shown, view, box)
    const chosen = this.config.chosen === map.key
    base.strokeStyle = css(chosen ? theme.primary : theme.line)
    base.lineWidth = chosen ? 2 : 1
    const edge = chosen ? 1 : 0.5
    base.strokeRect(box.x - edge, box.y - edge, box.w + 2 * edge, box.h + 2 * edge)
    this.drawTitle(map, box, i, chosen)
    if (this.layout.labels) this.drawLabels(map, box)
  }

  drawHatches(shown, view, { x, y, w, h }) {
    const { base } = this
    this.patterns ??= Object.fromEntries(
      Object.entries(this.theme.hatches).map(([code, look]) => [code, hatching(base, look, this.ratio)]),
    )
    base.fillStyle = this.patterns[MASKED]
    base.fillRect(x, y, w, h)
    base.fillStyle = this.patterns[NO_KEY]
    const tall = h / (view.bottom - view.top)
    const column = Math.floor(view.left)
    for (let r = Math.floor(view.top); r < view.bottom; r++) {
      if (shown.codes[r * shown.cols + column] !== NO_KEY) continue
      const from = Math.max(0, Math.round((r - view.top) * tall))
      base.fillRect(x, y + from, w, Math.min(h, Math.round((r + 1 - view.top) * tall)) - from)
    }
  }

  // Cells that hold no number carry a sign as well as a colour, where there is room.
  drawSigns(shown, view, box) {
    const wide = box.w / (view.right - view.left)
    const tall = box.h / (view.bottom - view.top)
    const size = Math.min(wide, tall)
    if (size < 7) return
    const { base } = this
    base.strokeStyle = css(this.theme.background)
    base.lineWidth = Math.max(1, size / 12)
    let left = MOST_SIGNS
    for (let r = Math.floor(view.top); r < view.bottom; r++) {
      for (let c = Math.floor(view.left); c < view.right; c++) {
        const code = shown.codes[r * shown.cols + c]
        if (code < NAN || !left--) continue
        const [x, y] = [box.x + (c + 0.5 - view.left) * wide, box.y + (r + 0.5 - view.top) * tall]
        sign(base, code, x, y, size * 0.28)
      }
    }
  }

  text(words, x, y, { align = "left", baseline = "alphabetic", most = Infinity, bold, colour, turn = 0, note } = {}) {
    const { base } = this
    const fitted = most === Infinity ? words : this.ruler.fit(words, most)
    base.font = `${bold ? "600 " : ""}${this.ruler.font}`
    base.fillStyle = css(colour ?? this.theme.text)
    base.textAlign = align
    base.textBaseline = baseline
    if (turn) {
      base.save()
      base.translate(x, y)
      base.rotate(turn)
      base.fillText(fitted, 0, 0)
      base.restore()
    } else base.fillText(fitted, x, y)
    if (note && fitted) this.note(note, fitted, x, y, align, baseline, turn)
  }

  // Where a label stands, for whoever wants to know whether any two overlap.
  note(what, text, x, y, align, baseline, turn) {
    const long = this.ruler.width(text)
    const lead = { left: 0, center: long / 2, right: long }[align]
    const rise = { middle: this.em / 2, top: 0, bottom: this.em, alphabetic: 0.8 * this.em }[baseline]
    const rect = turn
      ? { x: x - rise, y: y - (long - lead), w: this.em, h: long }
      : { x: x - lead, y: y - rise, w: long, h: this.em }
    this.labels.push({ ...what, text, turned: turn !== 0, ...rect })
  }

  drawTitle(map, box, i, bold) {
    const { theme, ruler } = this
    const y = box.y - 0.45 * this.em
    this.text(this.titles[i], box.x, y, { most: box.slot, bold, note: { axis: "title", index: map.key } })
    if (this.strip || !this.ownRanges) return
    const range = `${short(map.low, 2)} – ${short(map.high, 2)}`
    const room = box.w - ruler.width(this.titles[i]) - this.em
    if (ruler.width(range) <= room) this.text(range, box.x + box.w, y, { align: "right", colour: theme.muted })
  }

  get ownRanges() {
    return this.maps.some(map => map.low !== this.maps[0].low || map.high !== this.maps[0].high)
  }

  drawLabels(map, box) {
    const { ruler, em } = this
    const { frame } = this.layout
    const { top, bottom, left, right } = this.window(map)
    const tall = box.h / (bottom - top)
    const wide = box.w / (right - left)
    if (box.column === 0) {
      const { axis, step } = labelPlan(ruler, map.row_axis, [top, bottom], tall, em, false)
      const look = { align: "right", baseline: "middle", most: frame.side - 7 }
      for (let i = Math.ceil(top / step) * step; i < bottom; i += step) {
        const note = { axis: "row", index: i }
        this.text(nameOf(axis, i), box.x - 5, box.y + (i + 0.5 - top) * tall, { ...look, note })
      }
    }
    if (!box.lowest) return
    const { axis, step, turned } = labelPlan(ruler, map.col_axis, [left, right], wide, em, true)
    const look = turned
      ? { align: "right", baseline: "middle", most: frame.foot - 8, turn: -Math.PI / 2 }
      : { align: "center", baseline: "top", most: step * wide - 2 }
    for (let i = Math.ceil(left / step) * step; i < right; i += step) {
      const note = { axis: "col", index: i, map: map.key }
      this.text(nameOf(axis, i), box.x + (i + 0.5 - left) * wide, box.y + box.h + (turned ? 6 : 5), { ...look, note })
    }
  }

  drawAxisTitles() {
    const { left, top, right, bottom, axis, foot } = this.layout.frame
    const [{ row_axis: rows, col_axis: cols }] = this.maps
    const look = { align: "center", baseline: "middle", colour: this.theme.muted }
    this.text(rows.label, axis / 2, (top + bottom) / 2, { ...look, turn: -Math.PI / 2, most: bottom - top })
    this.text(cols.label, (left + right) / 2, bottom + foot + axis / 2, { ...look, most: right - left })
  }

  drawBar() {
    const { base, em } = this
    const { left, top, right, bottom, axis, foot, narrow } = this.layout.frame
    const [map] = this.maps
    const box = narrow
      ? { x: left, y: bottom + foot + axis + em * 0.4, w: Math.max(60, this.width - left - 12), h: BAR }
      : { x: right + 16, y: top, w: BAR, h: Math.max(40, bottom - top) }
    const along = narrow ? [box.x, 0, box.x + box.w, 0] : [0, box.y + box.h, 0, box.y]
    const ramp = this.theme.ramps[map.palette]
    const gradient = base.createLinearGradient(...along)
    ramp.forEach((colour, i) => gradient.addColorStop(i / (ramp.length - 1), css(colour)))
    base.fillStyle = gradient
    base.fillRect(box.x, box.y, box.w, box.h)
    base.strokeStyle = css(this.theme.line)
    base.lineWidth = 1
    base.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1)
    const { lowest, own_range: own, highest } = this.words
    const length = narrow ? box.w : box.h
    const room = narrow ? em * 4.5 : em * 2.6
    const ticks = this.ownRanges ? [[0, lowest], [0.5, own], [1, highest]] : barTicks(map, length, room)
    for (const [share, words] of ticks) {
      const note = { axis: "bar", index: share }
      if (narrow) {
        const align = share === 0 ? "left" : share === 1 ? "right" : "center"
        this.text(words, box.x + share * box.w, box.y + BAR + 5, { align, baseline: "top", note })
      } else {
        const y = Math.min(box.y + box.h - em / 2, Math.max(box.y + em / 2, box.y + box.h * (1 - share)))
        this.text(words, box.x + BAR + 5, y, { baseline: "middle", most: this.width - box.x - BAR - 5, note })
      }
    }
  }

  drawLegend() {
    const codes = this.strip ? [] : Object.keys(MARKS).filter(code => this.maps.some(map => map[MARKS[code]]))
    const signature = codes.join() + this.signature + JSON.stringify(this.words)
    if (signature === this.legend) return
    this.legend = signature
    this.parts.legend.replaceChildren(
      ...codes.map(code => {
        const entry = element("span", "")
        const swatch = document.createElement("canvas")
        this.size(swatch, 18, 14, this.ratio)
        const draw = swatch.getContext("2d")
        const hatch = this.theme.hatches[code]
        draw.fillStyle = hatch ? hatching(draw, hatch, this.ratio) : css(this.theme.marks[code])
        draw.fillRect(0, 0, 18, 14)
        draw.strokeStyle = css(this.theme.background)
        draw.lineWidth = 1.5
        sign(draw, Number(code), 9, 7, 4)
        entry.append(swatch, this.words[MARKS[code]])
        return entry
      }),
    )
  }

  // ---- pointing ----

  listen() {
    const { stage, reset } = this.parts
    stage.addEventListener("pointermove", event => this.move(event))
    stage.addEventListener("pointerleave", () => this.unpoint())
    stage.addEventListener("pointerdown", event => this.press(event))
    stage.addEventListener("pointerup", event => this.lift(event))
    stage.addEventListener("pointercancel", () => this.dropBand())
    stage.addEventListener("dblclick", () => this.doubled())
    stage.addEventListener("keydown", event => this.key(event))
    reset.addEventListener("pointerdown", event => event.stopPropagation())
    reset.addEventListener("click", () => this.unzoom())
    this.observer = new ResizeObserver(() => {
      if (this.parts.stage.clientWidth !== this.width || devicePixelRatio !== this.ratio) this.draw()
    })
  }

  place(event) {
    const box = this.parts.stage.getBoundingClientRect()
    return [event.clientX - box.left, event.clientY - box.top]
  }

  // The cell under a point.
  at(x, y) {
    const boxes = this.layout?.boxes ?? []
    const i = boxes.findIndex(b => x >= b.x && x < b.x + b.w && y >= b.y && y < b.y + b.h)
    if (i < 0 || !this.maps[i]) return null
    const [map, box] = [this.maps[i], boxes[i]]
    const { shown, top, bottom, left, right } = this.source(map)
    const r = Math.min(shown.rows - 1, Math.floor(top + ((y - box.y) / box.h) * (bottom - top)))
    const c = Math.min(shown.cols - 1, Math.floor(left + ((x - box.x) / box.w) * (right - left)))
    return this.cell(map, shown, r, c)
  }

  cell(map, shown, r, c) {
    const row = span(shown.row_axis, shown.pool[0], r)
    const col = span(shown.col_axis, shown.pool[1], c)
    return { map, shown, r, c, row, col, code: shown.codes[r * shown.cols + c] }
  }

  move(event) {
    const [x, y] = this.place(event)
    if (this.band) {
      this.band.to = [x, y]
      if (Math.hypot(x - this.band.from[0], y - this.band.from[1]) > DRAG) this.band.moved = true
      if (this.band.moved && this.band.zooms) {
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

  // Show what is under the pointer at once, and its exact value when the pointer rests.
  point() {
    clearTimeout(this.resting)
    const cell = this.at(...this.hover)
    this.mark()
    if (!cell) return this.hideTip()
    const known = this.exact.get(this.question(cell.map, cell.row.first, cell.col.first))
    if (pooled(cell.shown) || cell.code > BELOW) return this.tip(cell, this.spoken(cell))
    this.tip(cell, known ?? this.spoken(cell), known !== undefined)
    if (known !== undefined) return
    this.resting = setTimeout(() => this.refine(cell, 3), REST_MS)
  }

  // Another question may overtake this one, so it is asked again while the pointer stays.
  async refine(cell, again) {
    const value = await this.ask(cell.map, cell.row.first, cell.col.first)
    const now = this.hover && this.at(...this.hover)
    if (!now || now.map !== cell.map || now.r !== cell.r || now.c !== cell.c) return
    if (value !== null) this.tip(cell, value, true)
    else if (again && this.group?.live) this.resting = setTimeout(() => this.refine(cell, again - 1), RETRY_MS)
  }

  question(map, row, col) {
    return `${map.key} ${row} ${col}`
  }

  // The exact value of one cell as text; null when it cannot be had now.
  async ask(map, row, col) {
    const question = this.question(map, row, col)
    const { exact } = this
    if (exact.has(question)) return exact.get(question)
    const asked = this.asked?.question === question && this.asked.exact === exact
    if (!asked) this.asked = { question, exact, answer: this.group?.cell(this.config.part, map.key, row, col) }
    const mine = this.asked
    const got = await mine.answer
    if (this.asked === mine) this.asked = null
    if (!got || this.exact !== exact) return null
    const value = String(got.value) || this.words[got.state === 2 ? "no_key" : "masked"]
    exact.set(question, value)
    return value
  }

  spoken({ shown, code, row }) {
    if (code === NO_KEY) return fill(this.words.no_key_row, { row: row.first })
    if (code in MARKS) return this.words[MARKS[code]]
    return `≈ ${spelled(shown, code)}`
  }

  // "query 3 “the”", or the range that a pooled cell covers; a token is kept apart so that its direction cannot leak.
  located(part) {
    const { axis, first, last, names } = part
    const line = element("div", `${axis.label} ${first === last ? first : `${first}–${last}`}`)
    if (names) {
      const words = first === last ? `“${visible(names[0])}”` : `“${visible(names[0])}” … “${visible(names[1])}”`
      line.append(" ", element("bdi", words))
    }
    return line
  }

  reduced(cell) {
    const count = (cell.row.last - cell.row.first + 1) * (cell.col.last - cell.col.first + 1)
    return fill(this.words[cell.shown.reduce === "max" ? "max_of" : "mean_of"], { count })
  }

  tip(cell, value, exact = false) {
    const { tip, stage } = this.parts
    const strong = element("strong", value)
    strong.dataset.exact = String(exact)
    const lines = [element("div", cell.map.title, "note"), this.located(cell.row), this.located(cell.col), strong]
    if (pooled(cell.shown) && cell.code <= TOP) lines.push(element("div", this.reduced(cell), "note"))
    lines.push(element("div", this.words.from_zero, "note"))
    tip.replaceChildren(...lines)
    tip.hidden = false
    const [x, y] = this.hover ?? [0, 0]
    const [w, h] = [tip.offsetWidth, tip.offsetHeight]
    const right = x + 18 + w <= stage.clientWidth
    tip.style.left = `${right ? x + 18 : Math.max(0, x - 18 - w)}px`
    tip.style.top = `${Math.max(0, y + 18 + h <= stage.clientHeight ? y + 18 : y - 18 - h)}px`
  }

  // ---- selecting ----

  press(event) {
    if (event.button !== 0 || !event.isPrimary) return
    const [x, y] = this.place(event)
    const cell = this.at(x, y)
    if (!cell) return
    const box = this.layout.boxes[this.maps.indexOf(cell.map)]
    const zooms = event.pointerType !== "touch" && this.config.picks === "cell"
    this.band = { from: [x, y], to: [x, y], box, map: cell.map, zooms, moved: false }
    if (zooms) this.parts.stage.setPointerCapture(event.pointerId)
  }

  dropBand() {
    this.band = null
    this.mark()
  }

  lift(event) {
    const { band } = this
    this.band = null
    if (!band) return
    const twice = event.timeStamp - (this.lifted ?? -Infinity) < DOUBLE_MS
    this.lifted = band.moved ? undefined : event.timeStamp
    if (band.moved) return band.zooms ? this.zoomTo(band) : undefined
    // The second click of a double click on a zoomed picture only resets the zoom.
    if (twice && this.zooms.size) return
    const cell = this.at(...band.from)
    if (cell) this.choose(cell)
  }

  choose(cell) {
    this.parts.stage.focus({ preventScroll: true })
    if (this.config.picks === "map") return this.send("select", { map: cell.map.key, at: Date.now() })
    const chosen = this.selectionOf(cell.map, cell.row.first, cell.col.first)
    const old = this.group.selection
    this.before = this.zooms.size ? { selection: old, at: this.group.selectedAt } : null
    const same = old && Object.keys(chosen).every(name => old[name] === chosen[name])
    this.select(same ? null : chosen, this.zooms.size ? DOUBLE_MS : 0)
  }

  selectionOf(map, row, col) {
    return { map: map.key, [map.row_axis.dim]: row, [map.col_axis.dim]: col }
  }

  // Every picture of the group marks it at once; the page hears of it after the delay.
  select(selection, delay) {
    const at = Math.max(Date.now(), (this.group.selectedAt ?? 0) + 1)
    this.group.selectedAt = at
    clearTimeout(this.sending)
    this.sending = setTimeout(() => {
      this.sending = null
      this.send("select", { ...(selection ?? { map: null }), at })
    }, delay)
    this.group.select(selection)
  }

  selected() {
    const chosen = this.group?.selection
    const map = chosen && this.maps.find(candidate => candidate.key === chosen.map)
    if (!map) return null
    const { row_axis: rows, col_axis: cols } = map
    const [row, col] = [chosen[rows.dim] - rows.start, chosen[cols.dim] - cols.start]
    const inside = row >= 0 && row < rows.length && col >= 0 && col < cols.length
    return inside ? { map, row: row + rows.start, col: col + cols.start } : null
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target !== this.parts.stage || !this.maps.length) return
    const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
    if (by) {
      event.preventDefault()
      return this.config.picks === "map" ? this.nextMap(by[0] || by[1]) : this.step(by)
    }
    if (this.config.picks === "map") return
    if (event.key === "Escape") {
      if (this.band) this.dropBand()
      else if (this.group.selection) this.select(null, 0)
    } else if ("+=".includes(event.key)) this.closer()
    else if ("-0".includes(event.key)) this.unzoom()
  }

  nextMap(by) {
    const now = this.maps.findIndex(map => map.key === this.config.chosen)
    const next = this.maps[Math.min(this.maps.length - 1, Math.max(0, now + by))]
    this.config.chosen = next.key
    this.draw()
    clearTimeout(this.sending)
    this.sending = setTimeout(() => this.send("select", { map: next.key, at: Date.now() }), SETTLE_MS)
  }

  step([down, across]) {
    const chosen = this.selected()
    const map = chosen?.map ?? this.maps[0]
    const view = this.window(map)
    const { pool } = this.source(map).shown
    const go = (axis, now, by) => Math.min(axis.start + axis.length - 1, Math.max(axis.start, now + by))
    const row = chosen ? go(map.row_axis, chosen.row, down * pool[0]) : Math.floor(view.top)
    const col = chosen ? go(map.col_axis, chosen.col, across * pool[1]) : Math.floor(view.left)
    this.follow(map, row, col)
    this.select(this.selectionOf(map, row, col), SETTLE_MS)
  }

  // Move a zoomed window so that a cell is in it.
  follow(map, row, col) {
    const { top, bottom, left, right } = this.window(map)
    const shift = (low, high, at) => (at < low ? at - low : at >= high ? at + 1 - high : 0)
    const [down, across] = [shift(top, bottom, row), shift(left, right, col)]
    if (down || across) {
      this.zoom(map, { top: top + down, bottom: bottom + down, left: left + across, right: right + across })
    }
  }

  // The line that says what is selected; its value is exact as soon as the server has answered.
  reselect() {
    this.mark()
    const { chosen: line } = this.parts
    const chosen = this.selected()
    clearTimeout(this.asking)
    if (!chosen || this.config.picks === "map") return line.replaceChildren()
    const { map, row, col } = chosen
    const [r, c] = [(row - map.row_axis.start) / map.pool[0], (col - map.col_axis.start) / map.pool[1]].map(Math.floor)
    const cell = this.cell(map, map, r, c)
    const say = (value, exact) => {
      const places = [one(map.row_axis, row), one(map.col_axis, col)].map(part => this.located(part))
      const strong = element("strong", value)
      strong.dataset.exact = String(exact)
      line.replaceChildren(element("div", map.title), ...places, strong)
    }
    const known = this.exact.get(this.question(map, row, col))
    if (known !== undefined) return say(known, true)
    say(pooled(map) && cell.code <= TOP ? `${this.spoken(cell)} (${this.reduced(cell)})` : this.spoken(cell), false)
    if (cell.code > BELOW && !pooled(map)) return
    const ask = async again => {
      const value = await this.ask(map, row, col)
      if (!this.maps.includes(map) || this.selected()?.row !== row || this.selected().col !== col) return
      if (value !== null) say(value, true)
      else if (again && this.group?.live) this.asking = setTimeout(ask, RETRY_MS, again - 1)
    }
    this.asking = setTimeout(ask, REST_MS, 3)
  }

  // ---- zooming ----

  zoomTo({ from, to, box, map }) {
    const view = this.window(map)
    const cut = (a, b, start, size, low, high) => {
      const token = at => low + Math.min(1, Math.max(0, (at - start) / size)) * (high - low)
      const first = Math.min(Math.floor(token(Math.min(a, b))), high - 1)
      return [first, Math.min(high, Math.max(first + 1, Math.ceil(token(Math.max(a, b)))))]
    }
    const [top, bottom] = cut(from[1], to[1], box.y, box.h, view.top, view.bottom)
    const [left, right] = cut(from[0], to[0], box.x, box.w, view.left, view.right)
    this.zoom(map, { top, bottom, left, right })
  }

  closer() {
    const chosen = this.selected()
    const map = chosen?.map ?? this.maps[0]
    const view = this.window(map)
    const half = (low, high, middle) => {
      const size = Math.max(1, Math.ceil((high - low) / 2))
      const first = Math.min(high - size, Math.max(low, Math.round(middle - size / 2)))
      return [first, first + size]
    }
    const [top, bottom] = half(view.top, view.bottom, chosen ? chosen.row + 0.5 : (view.top + view.bottom) / 2)
    const [left, right] = half(view.left, view.right, chosen ? chosen.col + 0.5 : (view.left + view.right) / 2)
    this.zoom(map, { top, bottom, left, right })
  }

  zoom(map, view) {
    const { row_axis: r, col_axis: c } = map
    if (view.bottom - view.top === r.length && view.right - view.left === c.length) this.zooms.delete(shapeOf(map))
    else this.zooms.set(shapeOf(map), view)
    this.sharp.clear()
    this.draw()
    this.sharpenSoon()
  }

  doubled() {
    if (!this.zooms.size) return
    // The first click of the two selected something that nobody asked for.
    if (this.sending) {
      clearTimeout(this.sending)
      this.sending = null
      this.group.selectedAt = this.before.at
      this.group.select(this.before.selection)
    } else if (this.before) this.select(this.before.selection, 0)
    this.before = null
    this.unzoom()
  }

  unzoom() {
    if (!this.zooms.size) return
    this.zooms.clear()
    this.sharp.clear()
    this.draw()
  }

  // A zoomed map of pooled cells is asked for again, exact as far as its size allows.
  sharpenSoon() {
    clearTimeout(this.sharpening)
    const map = this.maps.find(m => this.zooms.has(shapeOf(m)) && pooled(m))
    if (map) this.sharpening = setTimeout(() => this.sharpen(map), SETTLE_MS)
  }

  async sharpen(map) {
    const { frames } = this
    const view = this.window(map)
    const bytes = await this.group?.region(this.config.part, map.key, [view.top, view.bottom], [view.left, view.right])
    if (!bytes || frames !== this.frames || this.window(map) !== view) return
    const frame = this.parsed(bytes)
    const grid = frame?.header.parts?.[this.config.part]
    for (const part of (grid && this.read(frame, grid)) ?? []) {
      if (this.maps.some(whole => whole.key === part.key)) this.sharp.set(part.key, part)
    }
    this.draw()
    this.root.dataset.sharp = String(Number(this.root.dataset.sharp ?? 0) + 1)
  }

  // ---- marks over the maps: crosshair, selection, rubber band ----

  mark() {
    const { over, layout } = this
    if (!layout || !this.theme) return
    over.clearRect(0, 0, this.width, layout.height)
    const chosen = this.group?.selection
    const cell = this.hover && !(this.band?.moved && this.band.zooms) ? this.at(...this.hover) : null
    this.root.attnvizMarks = { selected: [], crosshair: [] }
    this.maps.forEach((map, i) => {
      const box = layout.boxes[i]
      const { row_axis: rows, col_axis: cols } = map
      if (cell && shapeOf(cell.map) === shapeOf(map)) this.bars(map, box, cell.row.first, cell.col.first, false)
      if (chosen) this.bars(map, box, chosen[rows.dim], chosen[cols.dim], true, map.key === chosen.map)
    })
    if (!this.band?.moved || !this.band.zooms) return
    const { from, to, box } = this.band
    const clamp = (v, low, size) => Math.min(low + size, Math.max(low, v))
    const [x0, x1] = [clamp(from[0], box.x, box.w), clamp(to[0], box.x, box.w)]
    const [y0, y1] = [clamp(from[1], box.y, box.h), clamp(to[1], box.y, box.h)]
    const area = [Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0)]
    over.fillStyle = `rgb(${this.theme.primary.join()}, 0.25)`
    over.fillRect(...area)
    this.outline(...area, this.theme.primary, 2)
  }

  // Outlines of one row and one column of a map, either may be missing; where they meet, the cell.
  bars(map, box, row, col, firm, own) {
    const { top, bottom, left, right } = this.window(map)
    const { shown } = this.source(map)
    const edge = (index, axis, pool, low, high, size) => {
      if (!(index >= low && index < high)) return null
      const first = axis.start + Math.floor((index - axis.start) / pool) * pool
      const [a, b] = [Math.max(low, first), Math.min(high, first + pool)]
      const scale = size / (high - low)
      return [(a - low) * scale, Math.max(2, (b - a) * scale)]
    }
    const r = edge(row, shown.row_axis, shown.pool[0], top, bottom, box.h)
    const c = edge(col, shown.col_axis, shown.pool[1], left, right, box.w)
    const colour = firm ? this.theme.accent : this.theme.text
    if (r) this.rails(box.x, box.y + r[0], box.w, r[1], colour, firm)
    if (c) this.rails(box.x + c[0], box.y, c[1], box.h, colour, firm)
    if (r && c) {
      const grown = Math.max(0, 7 - Math.min(r[1], c[1])) / 2
      const [w, h] = [c[1] + 2 * grown, r[1] + 2 * grown]
      this.outline(box.x + c[0] - grown, box.y + r[0] - grown, w, h, colour, own ? 3 : 2)
    }
    const kept = this.root.attnvizMarks[firm ? "selected" : "crosshair"]
    if (r || c) kept.push({ map: map.key, row: r && [box.y + r[0], r[1]], col: c && [box.x + c[0], c[1]] })
  }

  // A row or a column between two lines; where it is thin they keep off it, for what it shows is what matters.
  rails(x, y, w, h, colour, firm) {
    if (Math.min(w, h) >= 6) return this.outline(x, y, w, h, colour, firm ? 1.5 : 1)
    const { over } = this
    over.fillStyle = css(colour)
    over.globalAlpha = firm ? 1 : 0.7
    if (w > h) for (const at of [y - 2, y + h + 1]) over.fillRect(x, at, w, 1)
    else for (const at of [x - 2, x + w + 1]) over.fillRect(at, y, 1, h)
    over.globalAlpha = 1
  }

  // A line in a casing of the page's colour, so that it shows on any cell.
  outline(x, y, w, h, colour, width) {
    const { over } = this
    over.strokeStyle = css(this.theme.background)
    over.globalAlpha = 0.85
    over.lineWidth = width + 2
    over.strokeRect(x, y, w, h)
    over.globalAlpha = 1
    over.strokeStyle = css(colour)
    over.lineWidth = width
    over.strokeRect(x, y, w, h)
  }
}

// A cross for NaN, a ring for infinity.
function sign(context, code, x, y, size) {
  context.beginPath()
  if (code === NAN) {
    context.moveTo(x - size, y - size)
    context.lineTo(x + size, y + size)
    context.moveTo(x + size, y - size)
    context.lineTo(x - size, y + size)
  } else if (code === INF) context.arc(x, y, size, 0, 2 * Math.PI)
  context.stroke()
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Heatmap(root))
  const heatmap = instances.get(root)
  heatmap.render(component)
  return () => heatmap.leave()
}
