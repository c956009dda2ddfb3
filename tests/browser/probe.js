// Times in a page, on its own clock: when a key or pointer was used (the event's own time), and when what it changed
// had been painted, which is one animation frame and one task after the change.
(() => {
  const probe = { input: 0, move: 0, release: 0, paints: [], touched: 0, host: null }
  const waiting = []

  // A page that never draws must not hold up the measurement for ever.
  function within(start) {
    return new Promise((resolve, reject) => {
      setTimeout(() => reject(new Error("nothing was painted within 30 s")), 30000)
      start(resolve)
    })
  }

  function afterPaint(done) {
    requestAnimationFrame(() => {
      const channel = new MessageChannel()
      channel.port1.onmessage = () => done(performance.now())
      channel.port2.postMessage(null)
    })
  }

  function keep(t, what) {
    probe.paints.push({ t, what })
    waiting.splice(0).forEach(wake => wake())
  }

  addEventListener("keydown", event => (probe.input = event.timeStamp), true)
  addEventListener("pointermove", event => (probe.move = event.timeStamp), true)
  addEventListener("pointerup", event => (probe.release = event.timeStamp), true)

  // Components live in shadow roots.
  function hosts(root = document) {
    const found = [...root.querySelectorAll("[data-frame]")]
    for (const element of root.querySelectorAll("*")) if (element.shadowRoot) found.push(...hosts(element.shadowRoot))
    return found
  }

  function area(element) {
    const box = element.getBoundingClientRect()
    return box.width * box.height
  }

  function noteFrame(host) {
    const what = host.dataset.params
    afterPaint(t => keep(t, what))
  }

  // The largest heatmap of the page, once it has painted; from then on its every frame is noted.
  probe.attach = () =>
    within(resolve => {
      const look = () => {
        const host = hosts().sort((a, b) => area(b) - area(a))[0]
        if (!host || !area(host)) return requestAnimationFrame(look)
        probe.host = host
        new MutationObserver(() => noteFrame(host)).observe(host, { attributeFilter: ["data-frame"] })
        afterPaint(resolve)
      }
      look()
    })

  // For a Plotly chart, whose node does not survive an update: a new title announces a new picture, which is there once
  // every heatmap has its image and the browser has decoded it.
  function plotlyPainted(done) {
    const images = [...document.querySelectorAll(".heatmaplayer image")]
    const ready = images.length && images.length >= document.querySelectorAll(".heatmaplayer .hm").length
    if (!ready || images.some(image => !image.href.baseVal)) return requestAnimationFrame(() => plotlyPainted(done))
    Promise.allSettled(images.map(image => image.decode())).then(() => afterPaint(done))
  }

  probe.watchTitle = () =>
    within(resolve => {
      let last = null
      const look = () => {
        const title = document.querySelector(".gtitle")?.textContent
        if (!title || title === last) return
        const first = last === null
        last = title
        plotlyPainted(t => (first ? resolve(t) : keep(t, title)))
      }
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true })
      look()
    })

  // For a page of plots and rows of bars, once all of them are drawn; from then on a paint is noted each time that all are drawn again.
  probe.watchPlots = () =>
    within(resolve => {
      let seen = null
      const counts = () => [...document.querySelectorAll(".attnviz-plot, .attnviz-strips")].map(root => Number(root.dataset.drawn ?? 0))
      const look = () => {
        const drawn = counts()
        if (!drawn.length || !drawn.every((count, i) => count > (seen?.[i] ?? 0))) return
        const first = seen === null
        seen = drawn
        afterPaint(t => (first ? resolve(t) : keep(t, String(drawn[0]))))
      }
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributeFilter: ["data-drawn"] })
      look()
    })

  // The rows of bars that a page begins with, once they are painted.
  probe.watchStrips = () =>
    within(resolve => {
      const look = () =>
        document.querySelector(".attnviz-strips[data-drawn]") ? afterPaint(resolve) : requestAnimationFrame(look)
      look()
    })

  // Everything else on the page: the time when its last change of words or elements was painted.
  probe.watchPage = () => {
    const main = document.querySelector('[data-testid="stMain"]')
    const seen = () => afterPaint(t => (probe.touched = t))
    new MutationObserver(seen).observe(main, { subtree: true, childList: true, characterData: true })
  }

  // The milliseconds to the first paint beyond the first `count` that comes after the input.
  probe.after = count =>
    within(resolve => {
      const check = () => {
        const paint = probe.paints.slice(count).find(({ t }) => t > probe.input)
        if (paint) resolve(paint.t - probe.input)
        else waiting.push(check)
      }
      check()
    })

  // The milliseconds from the input until the chart's first measured value, after all were predictions, in brackets.
  probe.measured = chart =>
    within(resolve => {
      let predicted = false
      const look = () => {
        const texts = [...document.querySelectorAll(`${chart} .annotation-text`)].map(text => text.textContent)
        const isMeasured = texts.some(text => !text.startsWith("("))
        predicted ||= texts.length > 0 && !isMeasured
        if (predicted && isMeasured) afterPaint(t => resolve(t - probe.input))
        else requestAnimationFrame(look)
      }
      look()
    })

  globalThis.attnvizProbe = probe
})()
