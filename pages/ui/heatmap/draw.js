// The picture: maps, titles, labels, colour bar and legend on one canvas.
const MOST_SIGNS = 3000

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

class Drawing {
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
      this.ruler = this.headings = null
      this.draw()
    }
  }

  retheme() {
    const raw = rawTheme(this.root)
    const signature = JSON.stringify(raw)
    if (signature === this.signature) return
    this.signature = signature
    const { theme, table } = themeOf(signature, raw)
    this.theme = theme
    this.table = table
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
    // A phone scrolls: there a picture may be taller, and its text need not reach the last row of a room.
    const phone = width < 480 ? this.config.phone_height : null
    const em = Math.max(13, 0.8125 * this.theme.em) * (phone ? 1 : this.config.scale)
    const font = `${em}px ${this.theme.font}`
    if (this.ruler?.font !== font) this.ruler = new Ruler(this.base, font)
    if (this.ratio !== ratio) this.patterns = null
    Object.assign(this, { ratio, em, width, labels: [] })
    const { maps, ruler, strip } = this
    const headings = this.grid.lines.length
    this.layout = maps.length
      ? arrange({
          maps, width, height: phone ?? this.config.height, em, ruler, strip, view: this.window(maps[0]),
          rows: this.config.layout === "rows", headings, notes: this.ranges,
        })
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
    this.drawHeadings()
    if (!this.strip && this.maps.length) {
      this.drawAxisTitles()
      if (hasBar(this.maps)) this.drawBar()
    }
    this.drawLegend()
    const { frame } = this.layout
    const used = frame.narrow === false && !this.strip && hasBar(this.maps) ? frame.right + BAR + 16 + 4 * em : width
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

  // What a map's colours reach from and to: of one that says so, the window's own values once it is zoomed.
  reach(map) {
    if (!this.config.own_zoom || !this.zooms.has(shapeOf(map))) return map
    const { shown, ...view } = this.source(map)
    let most = 0
    for (let r = Math.floor(view.top); r < view.bottom; r++) {
      for (let c = Math.floor(view.left); c < view.right; c++) {
        const code = shown.codes[r * shown.cols + c]
        if (code <= TOP) most = Math.max(most, Math.abs(valueOf(shown, code)))
      }
    }
    return most > 0 ? { ...map, low: -most, high: most } : map
  }

  drawMap(map, box, i) {
    const { base, ratio, theme } = this
    const { shown, ...view } = this.source(map)
    const device = v => Math.round(v * ratio)
    const [x, y] = [device(box.x), device(box.y)]
    const [w, h] = [device(box.x + box.w) - x, device(box.y + box.h) - y]
    const reach = this.reach(map)
    if (shown !== map && reach === map) shown.table ??= translatedTable(this.table(map.palette), shown, map)
    const own = reach === map ? null : translatedTable(this.table(map.palette), shown, reach)
    const table = own ?? (shown === map ? this.table(map.palette) : shown.table)
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

  text(words, x, y, look = {}) {
    const { align = "left", baseline = "alphabetic", most = Infinity, bold, colour, turn = 0, font, note } = look
    const { base } = this
    const fitted = most === Infinity ? words : this.ruler.fit(words, most)
    base.font = font ?? `${bold ? "600 " : ""}${this.ruler.font}`
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
    const { theme, ruler, ranges } = this
    const y = box.y - 0.45 * this.em
    const below = ranges !== null && this.layout.frame.lines > 1
    const wraps = this.layout.frame.lines > 1 && !below
    const lines = wraps ? ruler.wrap(this.titles[i], box.slot) : [this.titles[i], ...(below ? [""] : [])]
    lines.forEach((line, at) => {
      const note = { axis: "title", index: map.key }
      this.text(line, box.x, y - 1.1 * this.em * (lines.length - 1 - at), { most: box.slot, bold, note })
    })
    if (ranges === null) return
    const note = { axis: "range", index: map.key }
    const beside = below ? 0 : ruler.width(this.titles[i]) + this.em
    if (ruler.width(ranges[i]) > box.w - beside) return
    if (below) this.text(ranges[i], box.x, y, { colour: theme.muted, note })
    else this.text(ranges[i], box.x + box.w, y, { align: "right", colour: theme.muted, note })
  }

  // What the colours of each map reach from and to, where that is not the same for all; null where it is.
  get ranges() {
    if (this.strip || !this.ownRanges) return null
    return this.maps.map(map => `${short(map.low, 2)} – ${short(map.high, 2)}`)
  }

  // Above each line of maps its name, larger than what stands at the maps, and its note.
  drawHeadings() {
    const { em, base, width } = this
    const { left, title } = this.layout.frame
    const font = `${1.25 * em}px ${this.theme.font}`
    if (this.headings?.font !== font) this.headings = new Ruler(base, font)
    this.grid.lines.forEach(([name, note], line) => {
      const y = this.layout.boxes.find(box => box.line === line).y - title + 1.15 * em
      this.text(name, left, y, { font: `600 ${font}` })
      const x = left + base.measureText(name).width + 0.7 * em
      const text = this.headings.fit(note, width - x)
      this.text(text, x, y, { font })
      const w = x - left + this.headings.width(text)
      this.labels.push({ axis: "heading", index: line, text: `${name} ${text}`, x: left, y: y - em, w, h: 1.25 * em })
    })
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
    const middle = (left + right) / 2
    const most = 2 * Math.min(middle, this.width - middle) // a map of few columns is narrower than their name
    this.text(cols.label, middle, bottom + foot + axis / 2, { ...look, most })
  }

  drawBar() {
    const { base, em } = this
    const { left, top, right, bottom, axis, foot, narrow } = this.layout.frame
    const map = this.reach(this.maps[0])
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
        const most = this.width - box.x - BAR - 5
        const lines = this.ruler.width(words) > most ? this.ruler.wrap(words, most) : [words]
        lines.forEach((line, at) => {
          const down = 1.1 * em * (at - (lines.length - 1) / 2)
          this.text(line, box.x + BAR + 5, y + down, { baseline: "middle", most, note })
        })
      }
    }
  }

  drawLegend() {
    const codes = this.strip ? [] : Object.keys(MARKS).filter(code => this.maps.some(map => map[MARKS[code]]))
    const [map] = this.strip || !this.maps.length ? [{ kinds: [] }] : this.maps
    const signature = codes.join() + JSON.stringify(map.kinds) + this.signature + JSON.stringify(this.words)
    if (signature === this.legend) return
    this.legend = signature
    this.parts.legend.replaceChildren(
      ...map.kinds.map(([value, name]) => {
        const entry = element("span", "")
        const swatch = document.createElement("canvas")
        this.size(swatch, 18, 14, this.ratio)
        const draw = swatch.getContext("2d")
        const colour = this.table(map.palette)[codeOf(map, value)]
        draw.fillStyle = css([colour & 255, (colour >> 8) & 255, (colour >> 16) & 255])
        draw.fillRect(0, 0, 18, 14)
        entry.append(swatch, name)
        return entry
      }),
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
