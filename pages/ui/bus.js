// What links sliders and pictures in the browser. A group is one picture source: a route, the page's parameters
// and the values that are being dragged right now. Its text stands in front of every component's own module, and
// the first one to run installs it: components are separate modules and share nothing else.
//
// Events of a group: "frame" (a parsed frame), "select" (selection or null), "live" (boolean), "problem" (a sentence,
// or null once a frame came through again), "rows" (what a picture is zoomed into), "settle" (no override stands any more: what the page's run said counts; its
// payload is that run, and a component whose own data is of an older run waits for its new data).
(() => {
  // A heading that begins with this name has it as its id, and a browser then knows the heading by it.
  if (globalThis.attnviz?.group) return

  const ANSWER_LIMIT_MS = 60_000
  const RETRY_FIRST_MS = 2_000
  const RETRY_MOST_MS = 60_000

  // Streamlit's own module is the one address that is right behind a base path or a proxy's prefix; a page's path is not.
  function appBase() {
    for (const script of document.querySelectorAll("script[type=module][src]")) {
      const at = script.src.lastIndexOf("/static/js/")
      if (at > 0) return script.src.slice(0, at)
    }
    return document.location.origin
  }

  function parse(buffer) {
    if (buffer.byteLength < 4) throw new Error("a frame has at least 4 bytes")
    const size = new DataView(buffer).getUint32(0, true)
    if (4 + size > buffer.byteLength) throw new Error("a frame is shorter than its header says")
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)))
    const start = 4 + size
    return { header, buffer, payload: (offset, count) => new Uint16Array(buffer, start + offset, count) }
  }

  // The chart library, once for the page: from the page's head where that asked for it, else from its address.
  let charts
  function library(address) {
    charts ??= new Promise((resolve, reject) => {
      if (globalThis.Plotly) return resolve(globalThis.Plotly)
      const early = document.getElementById("attnviz-plotly")
      const script = early ?? Object.assign(document.createElement("script"), { src: appBase() + address })
      script.addEventListener("load", () => (globalThis.Plotly ? resolve(globalThis.Plotly) : reject(new Error("no Plotly"))))
      script.addEventListener("error", () => reject(new Error("no Plotly")))
      if (!early) document.head.append(script)
    }).catch(error => {
      charts = undefined // the next run tries again
      throw error
    })
    return charts
  }

  // Sorted, so that the same parameters are the same address whatever order they were set in.
  function query(params) {
    return new URLSearchParams(Object.entries(params).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))).toString()
  }

  // An answer that is not ours (a host's own page, a log-in form) has another type, even with status 200.
  async function answer(response, type) {
    const kind = (response.headers.get("content-type") ?? "").split(";")[0].trim()
    if (response.status === 404 || response.status === 405 || response.status >= 500) throw new Error("no live route")
    if (response.ok && kind === type) return type === "application/json" ? response.json() : response.arrayBuffer()
    if (response.status < 400 || kind !== "application/json") throw new Error("no live route")
    const { error } = await response.json()
    return { refused: String(error) }
  }

  class Group {
    constructor(name) {
      this.name = name
      this.live = true
      this.selection = null
      this._url = ""
      this._base = {}
      this._run = -Infinity
      this._overrides = new Map() // name -> {value, seq}; seq null while the value is still being dragged
      this._seq = 0
      this._listeners = new Map()
      this._busy = false
      this._wanted = null // address of the newest picture asked for
      this._last = null // the last live picture, {address, frame}: a page that knows of it does not send it again
      this._shown = null // address of the last live picture, null when the page's own is on screen
      this._retryAt = 0
      this._retryAfter = RETRY_FIRST_MS
      this._cell = null
      this._regions = new Map()
    }

    configure({ url, params, acks = {}, run = this._run }) {
      // Components of one run arrive in any order, and an older one's effect may run again on a theme change.
      if (run < this._run || !url) return
      this._run = run
      this._url = url
      this._base = params ?? {}
      const had = this._overrides.size
      for (const [name, seq] of Object.entries(acks)) {
        const held = this._overrides.get(name)
        if (held && held.seq !== null && seq >= held.seq) this._overrides.delete(name)
      }
      if (this._overrides.size) {
        if (this._address() !== this._wanted) this._ask()
      } else if (had) {
        // The server settled on another value than was dragged to: the live picture on screen is not the page's.
        this._wanted = null
        if (this._shown !== null && this._shown !== this._address()) this._ask()
        this._emit("problem", null)
        this._emit("settle", this._run)
      } else if (!this._busy) {
        this._shown = null
      }
      if (!this.live && performance.now() >= this._retryAt) this._ask(true)
    }

    get params() {
      const merged = { ...this._base }
      for (const [name, { value }] of this._overrides) merged[name] = value
      return merged
    }

    get pending() {
      return this.live && this._overrides.size > 0
    }

    // The picture of the page's own settings, for a page that leaves its cells to the route.
    refresh() {
      const address = this._address()
      if (this._last?.address !== address) return this._ask(true)
      this._shown = address
      this._emit("frame", this._last.frame)
    }

    move(name, value) {
      this._overrides.set(name, { value: String(value), seq: null })
      this._ask()
    }

    release(name, value) {
      // Above every number of an earlier visit whose session may still be there.
      this._seq = Math.max(this._seq + 1, Date.now())
      this._overrides.set(name, { value: String(value), seq: this._seq })
      this._ask()
      return this._seq
    }

    // For a slider that leaves the page: nobody would confirm its value any more.
    forget(name) {
      if (this._overrides.delete(name) && !this._overrides.size) this._emit("settle", this._run)
    }

    select(selection) {
      this.selection = selection
      this._emit("select", selection)
    }

    // The rows that one of its pictures is zoomed into, for those that share them.
    showRows(rows) {
      this._emit("rows", rows)
    }

    on(event, fn) {
      if (!this._listeners.has(event)) this._listeners.set(event, new Set())
      this._listeners.get(event).add(fn)
      return () => this._listeners.get(event).delete(fn)
    }

    // Exact value of one cell, as {value, ...}; null when refused, overtaken by a newer question, or out of reach.
    cell(part, map, row, col) {
      this._cell?.abort()
      this._cell = new AbortController()
      return this._question("/cell", { part, map, row, col }, "application/json", this._cell)
    }

    // A sharper picture of a part of a map, as a frame's bytes; null as for `cell`.
    region(part, map, rows, cols) {
      // Each picture has a question of its own: those that share their rows ask at the same time.
      this._regions.get(part)?.abort()
      const control = new AbortController()
      this._regions.set(part, control)
      const more = { part, map, rows: rows.join("-"), cols: cols.join("-") }
      return this._question("", more, "application/octet-stream", control)
    }

    async _question(path, more, type, control) {
      if (!this.live || !this._url) return null
      const url = `${appBase()}${this._url}${path}?${query({ ...this.params, ...more })}`
      try {
        const got = await answer(await fetch(url, { cache: "no-store", signal: control.signal }), type)
        if (!got.refused) return got
        this._emit("problem", got.refused)
      } catch {
        // Overtaken, or no route: the picture stands without it, and the next movement finds out about the route.
      }
      return null
    }

    _address() {
      return `${this._url}?${query(this.params)}`
    }

    _emit(event, payload) {
      for (const fn of [...(this._listeners.get(event) ?? [])]) fn(payload)
    }

    // One request at a time; what was asked for meanwhile is asked once the answer is here, and only the newest of it.
    async _ask(probe = false) {
      this._wanted = this._address()
      if (this._busy || !this._url || (!this.live && !probe)) return
      this._busy = true
      try {
        do {
          const sent = this._wanted
          if (sent === this._shown) break
          await this._fetch(sent, JSON.stringify(this._base))
          if (sent === this._wanted) break
        } while (this.live && this._wanted !== null)
      } finally {
        this._busy = false
      }
    }

    async _fetch(address, base) {
      let got
      try {
        const signal = AbortSignal.timeout(ANSWER_LIMIT_MS)
        got = await answer(await fetch(appBase() + address, { cache: "no-store", signal }), "application/octet-stream")
        if (!got.refused) got = parse(got)
      } catch {
        return this._lose()
      }
      this._find()
      // A rerun may have overtaken this picture: it then belongs to other settings, or to a value no longer held.
      const current = base === JSON.stringify(this._base)
      if (!current || (!this._overrides.size && address !== this._address())) return
      if (got.refused) return this._emit("problem", got.refused)
      this._shown = address
      this._last = { address, frame: got }
      this._emit("problem", null)
      this._emit("frame", got)
    }

    _lose() {
      this._retryAt = performance.now() + this._retryAfter
      this._retryAfter = Math.min(2 * this._retryAfter, RETRY_MOST_MS)
      if (!this.live) return
      this.live = false
      this._shown = null
      this._emit("live", false)
    }

    _find() {
      this._retryAfter = RETRY_FIRST_MS
      if (this.live) return
      this.live = true
      this._emit("live", true)
    }
  }

  // What a figure shows: what the page's last run says, or its part of the newest frame while a slider moves.
  class Following {
    constructor(draw, complain) {
      this.draw = draw
      this.complain = complain
      this.data = null
      this.spec = null
      this.group = null
      this.offs = []
    }

    // A run of the page has something to say, or the theme changed.
    render(data) {
      const fresh = data !== this.data
      this.data = data
      if (data.group) this.join(data)
      if (!this.spec || (fresh && !this.group?.pending)) this.spec = JSON.parse(data.figure)
      this.draw()
    }

    join(data) {
      if (this.group?.name !== data.group) {
        this.leave()
        this.group = globalThis.attnviz.group(data.group)
        this.offs = [
          this.group.on("frame", frame => this.take(frame.header.figures?.[this.data.part])),
          this.group.on("settle", run => this.data.run >= run && this.take(JSON.parse(this.data.figure))),
          this.group.on("problem", sentence => this.complain(sentence ?? "")),
        ]
      }
      this.group.configure(data)
    }

    leave() {
      for (const off of this.offs) off()
      this.offs = []
      this.group = null
    }

    take(spec) {
      if (!spec) return
      this.spec = spec
      this.draw()
    }
  }

  const groups = new Map()
  globalThis.attnviz = {
    parse,
    appBase,
    library,
    Following,
    group(name) {
      if (!groups.has(name)) groups.set(name, new Group(name))
      return groups.get(name)
    },
  }
})()
