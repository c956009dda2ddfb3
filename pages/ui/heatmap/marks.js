// What lies over the maps on a canvas of its own: crosshair, selection, rubber band.
class Marking extends Drawing {
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
