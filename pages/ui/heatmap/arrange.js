// Numbers as text, text that fits, and where each map, label and tick stands, in CSS pixels.
const GAP = 12
const BAR = 14
const MOST_CELL = 56 // of a side much shorter than the other
const SAMPLES = 256
const SPARSE = 5 // every how many labels an index says more than a token
const HEADING = 1.5 // height of a line's heading, in ems

function valueOf(map, code) {
  const share = code / TOP
  if (!map.log) return map.low * (1 - share) + map.high * share
  return 10 ** (Math.log10(map.low) * (1 - share) + Math.log10(map.high) * share)
}

const codeOf = (map, value) => Math.round(((value - map.low) / (map.high - map.low)) * TOP)

function short(value, digits = 3) {
  const size = Math.abs(value)
  if (size === 0) return "0"
  if (size >= 1e5 || size < 1e-4) {
    const [head, power] = value.toExponential(digits - 1).split("e")
    return `${Number(head)}e${Number(power)}`.replaceAll("-", "−")
  }
  return String(Number(value.toPrecision(digits))).replace("-", "−")
}

// A code's value with the digits that a code can carry.
function spelled(map, code) {
  const value = valueOf(map, code)
  const ratio = 10 ** (Math.log10(map.high / map.low) / TOP)
  const step = map.log ? Math.abs(value) * (ratio - 1) : (map.high - map.low) / TOP
  if (!(step > 0) || !value) return short(value, 7)
  const digits = 1 + Math.floor(Math.log10(Math.abs(value))) - Math.ceil(Math.log10(step))
  return short(value, Math.min(7, Math.max(1, digits)))
}

const niceStep = least => {
  for (let i = 0; ; i++) {
    const step = [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)
    if (step >= least) return step
  }
}

// What a person could not see, or would see turned around, is shown by a sign of its own.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g
function visible(token) {
  if (/^ +$/.test(token)) return "␣".repeat(token.length)
  return token.replace(UNSEEN, sign => {
    if (sign === "\t") return "⇥"
    if (sign === "\n" || sign === "\r") return "↵"
    return `⟨${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`
  })
}

const nameOf = (axis, index) => (axis.tokens ? visible(axis.tokens[index - axis.start] ?? "") : String(index))
const segmenter = globalThis.Intl?.Segmenter ? new Intl.Segmenter(undefined, { granularity: "grapheme" }) : null
const glyphsOf = text => (segmenter ? Array.from(segmenter.segment(text), part => part.segment) : [...text])

// Words with the space behind them; a Chinese character is one of its own.
const wordsOf = text => text.match(/[\u2e80-\uffef]\s*|[^\u2e80-\uffef\s]+\s*/g) ?? [text]

// Measures text in one font and remembers the widths.
class Ruler {
  constructor(context, font) {
    this.context = context
    this.font = font
    this.widths = new Map()
    this.widests = new WeakMap()
  }

  width(text) {
    const known = this.widths.get(text)
    if (known !== undefined) return known
    if (this.widths.size > 20000) this.widths.clear()
    this.context.font = this.font
    const { width } = this.context.measureText(text)
    this.widths.set(text, width)
    return width
  }

  // The text, or as many whole glyphs of it as fit before an ellipsis.
  fit(text, most) {
    if (text.length < 400 && this.width(text) <= most) return text
    const glyphs = glyphsOf(text.slice(0, 400))
    let [low, high] = [0, glyphs.length]
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if (this.width(`${glyphs.slice(0, middle).join("")}…`) <= most) low = middle
      else high = middle - 1
    }
    return low ? `${glyphs.slice(0, low).join("")}…` : ""
  }

  // The text on two lines: as many words as fit, and what is left of it.
  wrap(text, most) {
    const words = wordsOf(text)
    let first = words.length
    while (first > 1 && this.width(words.slice(0, first).join("").trim()) > most) first--
    return [words.slice(0, first), words.slice(first)].map(line => line.join("").trim()).filter(Boolean)
  }

  // The widest of the labels from one index to another.
  widest(axis, from, to) {
    if (!axis.tokens) return this.width(String(to - 1))
    if (!this.widests.has(axis.tokens)) this.widests.set(axis.tokens, new Map())
    const known = this.widests.get(axis.tokens)
    const range = `${from - axis.start}-${to - axis.start}`
    if (!known.has(range)) {
      const step = Math.max(1, (to - from) / SAMPLES)
      let most = 0
      for (let i = from; i < to; i += step) most = Math.max(most, this.width(nameOf(axis, Math.floor(i)).slice(0, 60)))
      known.set(range, most)
    }
    return known.get(range)
  }
}

// Which labels of an axis are drawn when a token is `cell` pixels wide, and whether they stand upright. Where most have
// to be left out, a token says little of where it is: there its index stands instead.
function labelPlan(ruler, axis, [from, to], cell, em, across) {
  const name = ruler.widest(axis, from, to)
  const upright = em * 1.12
  const flat = name + (name > 1.5 * em || !axis.tokens ? 6 : 2)
  const turned = across && axis.tokens !== null && flat > cell && flat > 2.4 * em
  const step = niceStep((across && !turned ? flat : upright) / cell)
  if (axis.tokens && step >= SPARSE) return labelPlan(ruler, { ...axis, tokens: null }, [from, to], cell, em, across)
  return { axis, step, turned, widest: name }
}

// The largest box of a map's shape in a slot: square cells unless one side is far longer than the other.
function boxIn(map, width, height, [flat, tall]) {
  const [rows, cols] = [map.row_axis.length, map.col_axis.length]
  const shape = rows / cols
  const kept = Math.min(tall, Math.max(flat, shape))
  let w = Math.min(width, height / kept)
  let h = w * kept
  if (shape < flat) h = Math.min(h, Math.max(w * shape, rows * MOST_CELL))
  if (shape > tall) w = Math.min(w, Math.max(h / shape, cols * MOST_CELL))
  return { w: even(Math.floor(w), cols), h: even(Math.floor(h), rows) }
}

// The number of columns that draws the maps largest; lines that have headings are as long as they are.
function split(maps, room, title, bounds, headings) {
  let best = null
  const counts = Array.from({ length: maps.length }, (_, i) => i + 1)
  for (const columns of headings ? [maps.length / headings] : counts) {
    const lines = Math.ceil(maps.length / columns)
    const w = (room.w - (columns - 1) * GAP) / columns
    const h = room.h / lines - title - GAP / 2
    const box = boxIn(maps[0], Math.max(4, w), Math.max(4, h), bounds)
    const score = bounds.equal ? Math.min(w, h) : box.w * box.h
    if (!best || score > best.score) best = { columns, lines, w: Math.max(4, w), h: Math.max(4, h), score }
  }
  return best
}

// Values that all have names stand in the legend instead.
const hasBar = maps => !maps[0].kinds.length

// As many whole pixels for each of `count` cells as there are.
const even = (length, count) => (length >= 4 * count ? length - (length % count) : Math.max(4, Math.floor(length)))

// What each map gets of the room that maps side by side share: by its columns, and no less than its title needs.
function shares(maps, room, ruler) {
  const cols = maps.map(map => map.col_axis.length)
  const least = maps.map(map => Math.min(ruler.width(map.title) + 6, room / maps.length))
  const fixed = new Set()
  for (let round = 0; round < maps.length; round++) {
    const open = maps.map((_, i) => i).filter(i => !fixed.has(i))
    const left = room - [...fixed].reduce((sum, i) => sum + least[i], 0)
    const total = open.reduce((sum, i) => sum + cols[i], 0)
    const short = open.find(i => (left * cols[i]) / total < least[i])
    if (short === undefined) return maps.map((_, i) => (fixed.has(i) ? least[i] : (left * cols[i]) / total))
    fixed.add(short)
  }
  return least
}

// Maps that share their rows: one height, rows on one line and named; below each other where the screen is narrow.
// Where columns have names too, each map has its own below it.
function beside({ maps, width, height, em, ruler, view }) {
  const narrow = width < 480
  const rows = maps[0].row_axis
  const title = Math.round(em * 1.6)
  const axis = Math.round(em * 1.5)
  const longest = Math.min(7 * em, width * (narrow ? 0.2 : 0.22))
  const side = Math.ceil(Math.min(longest, ruler.widest(rows, view.top, view.bottom))) + 8
  const left = axis + side
  const right = narrow || !hasBar(maps) ? 12 : BAR + 16 + Math.round(em * 4)
  const bar = narrow && hasBar(maps) ? BAR + Math.round(em * 2) : 0
  const lines = narrow ? maps.length : 1
  const room = width - left - right - (narrow ? 0 : (maps.length - 1) * GAP)
  const widths = narrow ? maps.map(() => room) : shares(maps, room, ruler)
  const across = maps.map((map, i) => {
    const cols = map.col_axis.length
    return even(Math.floor(Math.min(widths[i], cols * MOST_CELL)), cols)
  })
  const named = maps.some(map => map.col_axis.tokens)
  const plans = maps.map(({ col_axis: { start, length }, col_axis }, i) =>
    labelPlan(ruler, col_axis, [start, start + length], across[i] / length, em, true),
  )
  const turned = plans.filter(plan => plan.turned).map(plan => Math.ceil(Math.min(longest, plan.widest)))
  const foot = named ? Math.max(em, ...turned) + 8 : 4
  const tall = (height - axis - bar - (named ? 0 : foot)) / lines - title - (narrow ? GAP / 2 : 0) - (named ? foot : 0)
  const h = even(Math.floor(Math.max(4, Math.min(tall, 2 * em * rows.length))), rows.length)
  let [x, y] = [left, title]
  const boxes = maps.map((map, i) => {
    const w = across[i]
    const [line, column] = narrow ? [i, 0] : [0, i]
    const box = { x: Math.round(x), y, w, h, line, column, slot: Math.floor(widths[i]), lowest: named }
    if (narrow) y += h + title + GAP / 2 + (named ? foot : 0)
    else x += Math.max(w, Math.min(widths[i], ruler.width(map.title))) + GAP
    return box
  })
  const last = boxes[boxes.length - 1]
  const bottom = last.y + h
  const edge = Math.max(...boxes.map(box => box.x + box.w))
  const frame = { left, top: title, right: edge, bottom, axis, side, foot, bar, narrow, em, title, lines: 1 }
  return { boxes, labels: true, frame, width, height: Math.ceil(bottom + axis + foot + bar) }
}

// Where everything stands.
//   maps: those of the grid; width, height: of the picture; em: text size; strip: thumbnails, without axes and bar;
//   rows: maps that share their rows and nothing else;
//   view: the window on the first map, in tokens; headings: how many lines have one, 0 is none;
//   notes: what stands beside each title, or null; below the titles where one of them has no room for it.
function arrange({ maps, width, height, em, ruler, strip, rows: shared, view, headings = 0, notes = null }) {
  if (shared) return beside({ maps, width, height, em, ruler, view })
  const bounds = Object.assign(strip ? [0.5, 1.6] : [0.4, 2.2], { equal: strip })
  const narrow = width < 480
  const barred = hasBar(maps)
  const same = maps.every(map => sameAxis(map.row_axis, maps[0].row_axis) && sameAxis(map.col_axis, maps[0].col_axis))
  const { row_axis: rows, col_axis: cols } = maps[0]
  const spans = { rows: [view.top, view.bottom], cols: [view.left, view.right] }
  const longest = Math.min(7 * em, width * (narrow ? 0.2 : 0.22))
  const attempt = (plans, lines = 1) => {
    const made = stand(plans, lines)
    if (notes === null || lines > 1) return made
    const [titles, wide] = [maps.map(map => ruler.width(map.title)), notes.map(note => ruler.width(note))]
    const cut = made.boxes.some(({ w }, i) => titles[i] + em + wide[i] > w)
    return cut && made.boxes.every(({ w }, i) => wide[i] <= w) ? stand(plans, 2) : made
  }
  const stand = (plans, lines) => {
    const heading = headings ? Math.round(em * HEADING) : 0
    const title = Math.round(em * (0.5 + 1.1 * lines)) + heading
    const labels = plans !== null
    const side = labels ? Math.ceil(Math.min(longest, plans.rows.widest)) + 8 : 4
    const foot = labels ? (plans.cols.turned ? Math.ceil(Math.min(longest, plans.cols.widest)) : em) + 8 : 4
    const axis = strip ? 0 : Math.round(em * 1.5)
    const left = strip ? 1 : axis + side
    const right = strip ? 1 : narrow || !barred ? 12 : BAR + 16 + Math.round(em * 4)
    const bottom = strip ? 1 : axis + foot
    const bar = strip || !narrow || !barred ? 0 : BAR + Math.round(em * 2)
    const room = { w: width - left - right, h: height - bottom - bar }
    const plan = split(maps, room, title, bounds, headings)
    const boxes = []
    let y = 0
    let used = 0
    for (let line = 0; line < plan.lines; line++) {
      let tallest = 0
      const from = line * plan.columns
      const sizes = maps.slice(from, from + plan.columns).map(map => boxIn(map, plan.w, plan.h, bounds))
      // Thumbnails on one line close up; where there are more lines, they stand below each other.
      const wide = size => (strip && plan.lines > 1 ? plan.w : size.w)
      let x = left
      sizes.forEach((size, i) => {
        // A map narrower than its title has the title's room, where no map below it would have to move too.
        const named = Math.min(plan.w, Math.max(wide(size), ruler.width(maps[from + i].title) + 4))
        const room = strip || plan.lines === 1 ? named : size.w
        boxes.push({ x: Math.round(x), y: y + title, w: size.w, h: size.h, line, column: i, slot: Math.floor(room) })
        tallest = Math.max(tallest, size.h)
        used = Math.max(used, x + size.w)
        x += room + GAP
      })
      y += title + tallest + (line < plan.lines - 1 ? GAP / 2 : 0)
    }
    const depth = column => Math.max(...boxes.map((box, i) => (box.column === column ? i : -1)))
    boxes.forEach((box, i) => (box.lowest = depth(box.column) === i))
    const frame = { left, top: title, right: used, bottom: y, axis, side, foot, bar, narrow, em, title, lines }
    return { boxes, labels, frame, width, height: Math.ceil(y + bottom + bar) }
  }
  if (strip) {
    // A title of several words that its thumbnail has no room for takes a second line.
    const made = attempt(null)
    const titles = maps.map(map => map.title)
    const cut = made.boxes.some(({ slot }, i) => wordsOf(titles[i]).length > 1 && ruler.width(titles[i]) > slot)
    return cut && shortTitles(titles)[0] === titles[0] ? attempt(null, 2) : made
  }
  if (!same) return attempt(null)
  // The room for labels decides how large the maps are, and that decides which labels: twice round settles it.
  const planned = ({ w, h }) => ({
    rows: labelPlan(ruler, rows, spans.rows, h / (view.bottom - view.top), em, false),
    cols: labelPlan(ruler, cols, spans.cols, w / (view.right - view.left), em, true),
  })
  let made = attempt(planned({ w: width, h: height }))
  for (let round = 0; round < 2; round++) made = attempt(planned(made.boxes[0]))
  const small = maps.length > 1 && Math.max(made.boxes[0].h, made.boxes[0].w) < 6.5 * em
  return small ? attempt(null) : made
}

function sameAxis(a, b) {
  return a.dim === b.dim && a.length === b.length && a.start === b.start && a.tokens === b.tokens
}

// Titles that do not fit lose the words they all begin with: "head 11" becomes "11".
function shortTitles(titles) {
  if (titles.length < 2) return titles
  const first = titles[0]
  let end = 0
  while (end < first.length && titles.every(title => title[end] === first[end])) end++
  const cut = first.lastIndexOf(" ", end - 1) + 1
  return titles.map(title => title.slice(cut))
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"
const raised = number => [...String(Math.abs(number))].map(digit => RAISED[digit]).join("")
const power = exponent => `10${exponent < 0 ? "⁻" : ""}${raised(exponent)}`

// Ticks of the colour bar as [share of its length, text]: both ends, and round numbers between that leave room.
function barTicks(map, length, room) {
  const { low, high } = map
  if (!(high > low)) return [[0.5, short(low, 4)]]
  const end = value => {
    const exponent = Math.log10(value)
    return map.log && Math.abs(exponent) >= 2 && Number.isInteger(exponent) ? power(exponent) : short(value)
  }
  const ends = [[0, end(low)], [1, end(high)]]
  const inner = []
  if (map.log) {
    const [first, last] = [Math.log10(low), Math.log10(high)]
    const every = niceStep(((last - first) * room) / length)
    for (let e = Math.ceil(first / every) * every; e <= last; e += every) {
      inner.push([(e - first) / (last - first), power(e)])
    }
  } else {
    const least = ((high - low) * room) / length
    const unit = 10 ** Math.floor(Math.log10(least))
    const step = niceStep(Math.ceil((least / unit) * 1e9) / 1e9) * unit
    for (let n = Math.ceil(low / step); n * step <= high; n++) {
      inner.push([(n * step - low) / (high - low), short(n * step)])
    }
  }
  const away = share => share * length >= room * 0.8 && (1 - share) * length >= room * 0.8
  return [ends[0], ...inner.filter(([share]) => away(share)), ends[1]]
}
