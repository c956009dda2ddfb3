// Codes to colours to pixels: the theme's colours, a table of 65,536 of them per palette, and the painting of a map.
const TOP = 65529
const BELOW = 65531
const MASKED = 65532
const NO_KEY = 65533
const NAN = 65534
const INF = 65535
const MARKS = { [MASKED]: "masked", [NO_KEY]: "no_key", [BELOW]: "below", [NAN]: "nan", [INF]: "inf" }
const THEME = [
  "background-color", "text-color", "primary-color", "border-color", "font", "chart-sequential-colors",
  "chart-diverging-colors", "chart-categorical-colors",
] // prettier-ignore

const blend = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share))
const css = colour => `rgb(${colour.join()})`
const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0
const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b

// Streamlit hands its theme to a component as variables; as they come, to see whether anything changed.
function rawTheme(element) {
  const style = getComputedStyle(element)
  const raw = Object.fromEntries(THEME.map(name => [name, style.getPropertyValue(`--st-${name}`).trim()]))
  raw.em = parseFloat(getComputedStyle(document.documentElement).fontSize) || 16
  return raw
}

function readTheme(raw) {
  const probe = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
  const colour = (text, other) => {
    probe.fillStyle = other
    probe.fillStyle = text
    probe.fillRect(0, 0, 1, 1)
    return [...probe.getImageData(0, 0, 1, 1).data.slice(0, 3)]
  }
  const list = text => text.split(/,(?![^(]*\))/).filter(Boolean).map(part => colour(part.trim(), "#888"))
  const background = colour(raw["background-color"], "#fff")
  const text = colour(raw["text-color"], "#111")
  const dark = light(background) < light(text)
  const sequential = list(raw["chart-sequential-colors"])
  const diverging = list(raw["chart-diverging-colors"])
  const amber = dark ? [255, 178, 46] : [176, 106, 0]
  return {
    background, text, dark,
    primary: colour(raw["primary-color"], "#06c"),
    accent: list(raw["chart-categorical-colors"])[1] ?? [214, 74, 0],
    muted: blend(background, text, 0.72),
    line: blend(background, text, 0.45),
    font: raw.font || "sans-serif",
    em: raw.em,
    ramps: {
      sequential: sequential.length > 1 ? sequential : [background, text],
      diverging: diverging.length > 1 ? diverging : [[171, 84, 22], background, [37, 98, 161]],
    },
    // Masked cells and rows without a key are windows in the picture: what shows through is a hatching below it.
    hatches: {
      [MASKED]: { ground: blend(background, text, dark ? 0.16 : 0.08), stroke: blend(background, text, 0.26), lean: 1 },
      [NO_KEY]: { ground: blend(background, amber, 0.22), stroke: amber, lean: -1 },
    },
    marks: {
      [NAN]: dark ? [255, 92, 196] : [190, 10, 124],
      [INF]: text,
      [BELOW]: dark ? [66, 48, 98] : [222, 208, 240],
    },
  } // prettier-ignore
}

// Each code's colour; codes without one of their own are see-through. Eight neighbours share one: between two of them
// no colour that a screen can show would lie.
const SHARED = 8
function colourTable(ramp, marks) {
  const table = new Uint32Array(65536)
  const last = ramp.length - 1
  for (let code = 0; code <= TOP; code += SHARED) {
    const end = Math.min(TOP, code + SHARED - 1)
    const at = ((code + end) / 2 / TOP) * last
    const below = Math.min(last - 1, Math.floor(at))
    table.fill(pixel(blend(ramp[below], ramp[below + 1], at - below)), code, end + 1)
  }
  for (const [code, colour] of Object.entries(marks)) table[code] = pixel(colour)
  return table
}

// The colours of a theme and its tables, made once for all heatmaps of a page and only when a map asks for them.
let themes = {}
function themeOf(signature, raw) {
  if (themes.signature === signature) return themes
  const theme = readTheme(raw)
  const made = {}
  themes = { signature, theme, table: palette => (made[palette] ??= colourTable(theme.ramps[palette], theme.marks)) }
  return themes
}

// The same colours for codes that stand for other values: `part` has a range of its own, `whole` the one of the bar.
function translatedTable(table, part, whole) {
  if (part.low === whole.low && part.high === whole.high) return table
  const moved = table.slice()
  const put = whole.log ? Math.log10 : value => value
  const [low, reach] = [put(whole.low), put(whole.high) - put(whole.low)]
  for (let code = 0; code <= TOP; code++) {
    const share = reach > 0 ? (put(valueOf(part, code)) - low) / reach : 0
    moved[code] = table[Math.round(Math.min(1, Math.max(0, share)) * TOP)]
  }
  return moved
}

// How strongly a code speaks when several share one pixel: marks of trouble first, values by size, then the rest.
function strength(of) {
  const table = new Uint16Array(65536)
  for (let code = 0; code <= TOP; code++) table[code] = 4 + of(code)
  for (const [code, rank] of [[MASKED, 1], [NO_KEY, 2], [BELOW, 3], [INF, 65534], [NAN, 65535]]) table[code] = rank
  return table
}
const STRENGTH = {}
function strengthOf(palette) {
  return (STRENGTH[palette] ??= strength(palette === "diverging" ? code => Math.abs(2 * code - TOP) : code => code))
}

function hatching(context, { ground, stroke, lean }, ratio) {
  const size = Math.round(8 * ratio)
  const tile = new OffscreenCanvas(size, size)
  const draw = tile.getContext("2d")
  draw.fillStyle = css(ground)
  draw.fillRect(0, 0, size, size)
  draw.strokeStyle = css(stroke)
  draw.lineWidth = ratio
  draw.beginPath()
  for (const shift of [-size, 0, size]) {
    draw.moveTo(shift, lean > 0 ? size : 0)
    draw.lineTo(shift + size, lean > 0 ? 0 : size)
  }
  draw.stroke()
  return context.createPattern(tile, "repeat")
}

// Where each cell from `first` to `stop` of one side goes, and how many pixels that side takes.
function targets(from, to, room) {
  const [first, stop] = [Math.floor(from), Math.ceil(to)]
  const shrinks = to - from > room
  const size = shrinks ? room : stop - first
  const goes = new Uint32Array(stop - first)
  for (let i = 0; i < goes.length; i++) {
    const at = ((first + i + 0.5 - from) * room) / (to - from)
    goes[i] = shrinks ? Math.min(room - 1, Math.max(0, Math.floor(at))) : i
  }
  return { first, size, goes, shrinks, start: shrinks ? 0 : from - first, length: shrinks ? room : to - from }
}

// Paint the window of a map for a box of so many device pixels. Cells smaller than a pixel do not blur into one
// another: the strongest shows, so a lone peak never vanishes, as in the maps that the server pools.
function paint(slot, map, view, room, table) {
  const across = targets(view.left, view.right, room.w)
  const down = targets(view.top, view.bottom, room.h)
  const [width, height] = [across.size, down.size]
  if (slot.image?.width !== width || slot.image?.height !== height) {
    slot.canvas ??= new OffscreenCanvas(1, 1)
    slot.canvas.width = width
    slot.canvas.height = height
    slot.context = slot.canvas.getContext("2d")
    slot.image = new ImageData(width, height)
    slot.pixels = new Uint32Array(slot.image.data.buffer)
  }
  const { pixels } = slot
  const { codes } = map
  if (across.shrinks || down.shrinks) {
    const rank = strengthOf(map.palette)
    const best = new Uint16Array(width * height)
    for (let r = 0; r < down.goes.length; r++) {
      const line = down.goes[r] * width
      let at = (down.first + r) * map.cols + across.first
      for (let c = 0; c < across.goes.length; c++) {
        const code = codes[at++]
        const to = line + across.goes[c]
        if (rank[code] > best[to]) {
          best[to] = rank[code]
          pixels[to] = table[code]
        }
      }
    }
  } else {
    let to = 0
    for (let r = 0; r < height; r++) {
      let at = (down.first + r) * map.cols + across.first
      for (let c = 0; c < width; c++) pixels[to++] = table[codes[at++]]
    }
  }
  slot.context.putImageData(slot.image, 0, 0)
  return { canvas: slot.canvas, x: across.start, y: down.start, w: across.length, h: down.length }
}
