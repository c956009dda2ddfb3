// Selecting a cell and zooming into a window, by mouse, finger and keys.
const SETTLE_MS = 160 // before the page hears of a key press, and before a sharper picture is asked for
const DOUBLE_MS = 300

class Choosing extends Pointing {
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
    if (this.config.picks === "map") return this.send("select", { map: cell.map.key })
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
    this.sending = setTimeout(() => this.send("select", { map: next.key }), SETTLE_MS)
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
      line.replaceChildren(element("div", map.name), ...places, strong)
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
    this.hover = to
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
    this.put(map, view)
    this.tell(map, view)
  }

  put(map, view) {
    const { row_axis: r, col_axis: c } = map
    if (view.bottom - view.top === r.length && view.right - view.left === c.length) this.zooms.delete(shapeOf(map))
    else this.zooms.set(shapeOf(map), view)
    this.sharp.clear()
    this.show()
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
    this.show()
    if (this.maps.length) this.tell(this.maps[0], this.window(this.maps[0]))
  }

  // Say to the pictures that share its rows which of them are seen.
  tell({ row_axis: axis }, { top, bottom }) {
    if (this.config.shares_rows) this.group?.showRows({ dim: axis.dim, length: axis.length, top, bottom, by: this })
  }

  // See the rows that another picture is zoomed into; the columns stay.
  seeRows({ dim, length, top, bottom, by }) {
    const [map] = this.maps
    if (by === this || !this.config.shares_rows || !map) return
    if (map.row_axis.dim === dim && map.row_axis.length === length) this.put(map, { ...this.window(map), top, bottom })
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
    this.show()
    this.root.dataset.sharp = String(Number(this.root.dataset.sharp ?? 0) + 1)
  }
}
