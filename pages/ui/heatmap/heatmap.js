// The component: it draws the page's frames and its group's live ones, without a rerun of the page; the page hears of a
// selection only.
const instances = new WeakMap()

class Heatmap extends Choosing {
  constructor(root) {
    super(root)
    this.listen()
  }

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
      group.on("rows", rows => this.seeRows(rows)),
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
    const across = grid.maps.length / grid.lines.length
    const titled = (map, i) => (grid.lines.length ? `${grid.lines[Math.floor(i / across)][0]} · ${map.title}` : map.title)
    try {
      return grid.maps.map((map, i) => ({
        ...map,
        // What it is called where it is spoken of by itself.
        name: titled(map, i),
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
    this.show()
    this.sharpenSoon()
    this.reselect()
  }

  // The picture, with what is said of it and of the cell under the pointer.
  show() {
    this.draw()
    this.caption()
    if (this.hover) this.point()
  }

  caption() {
    const lines = [this.grid.caption]
    const map = this.maps.map(whole => this.source(whole).shown).find(pooled)
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
}

export default function (component) {
  const root = component.parentElement.querySelector("[data-part=root]")
  if (!instances.has(root)) instances.set(root, new Heatmap(root))
  const heatmap = instances.get(root)
  heatmap.render(component)
  return () => heatmap.leave()
}
