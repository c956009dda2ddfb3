// Copies the address of the view. The clipboard API exists on https and localhost only; a phone that opens the app
// by the speaker's IP address gets the older way.
const SHOWN_MS = 1600

function copyTheOldWay(text) {
  const field = document.createElement("textarea")
  field.value = text
  field.style.position = "fixed"
  field.style.opacity = "0"
  document.body.append(field)
  field.select()
  const done = document.execCommand("copy")
  field.remove()
  return done
}

async function copy(text) {
  if (!navigator.clipboard) return copyTheOldWay(text)
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    return copyTheOldWay(text)
  }
}

export default function ({ parentElement, data }) {
  const button = parentElement.querySelector("button")
  const status = parentElement.querySelector("span")
  button.textContent = data.label
  button.onclick = async () => {
    const address = new URL(window.location.href)
    address.search = new URLSearchParams(data.settings).toString()
    address.hash = ""
    const done = await copy(address.toString())
    button.dataset.copied = done ? address.toString() : ""
    status.textContent = button.textContent = done ? data.copied : data.failed
    setTimeout(() => { button.textContent = data.label }, SHOWN_MS)
  }
}
