// What is under the pointer: said at once from the codes, and exactly once the pointer rests.
const REST_MS = 60
const RETRY_MS = 200
const DRAG = 6

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

class Pointing extends Marking {
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
    const value = String(got.value).replace("-", "−") || this.words[got.state === 2 ? "no_key" : "masked"]
    exact.set(question, value)
    return value
  }

  spoken({ shown, code, row }) {
    if (code === NO_KEY) return fill(this.words.no_key_row, { row: row.first })
    if (code in MARKS) return this.words[MARKS[code]]
    const kind = shown.kinds.find(([value]) => codeOf(shown, value) === code)
    return kind ? kind[1] : `≈ ${spelled(shown, code)}`
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
    const lines = [element("div", cell.map.name, "note"), this.located(cell.row), this.located(cell.col), strong]
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
}
