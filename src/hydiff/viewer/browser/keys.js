// Handle keys of the picture while it has the focus, and keys of the page outside of input fields.
// Only the page that was drawn last handles them.
const [rows, cols] = shape
const focused = () => {
    let e = document.activeElement
    while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement
    return e
}
const send = (key, row = -1, col = -1) =>
    pressed.data = {key: [key], row: [row], col: [col], count: [pressed.data.count[0] + 1]}
const move = (down, right) => {
    const [x, y] = cursor.data.x.length ? [cursor.data.x[0], cursor.data.y[0]] : [cols / 2, rows / 2]
    const row = Math.min(rows - 1, Math.max(0, Math.floor(y) + down))
    const col = Math.min(cols - 1, Math.max(0, Math.floor(x) + right))
    cursor.data = {x: [col + 0.5], y: [row + 0.5]}
    at.data = {row: [row], col: [col]}
}
const zoom = (factor) => {
    for (const range of [figure.x_range, figure.y_range]) {
        const middle = (range.start + range.end) / 2
        const [start, end] = [range.start, range.end].map((v) => middle + factor * (v - middle))
        range.setv({start, end})
    }
}
const swipe = (share) => {
    const value = slider.value + Math.round(share * cols)
    slider.value = Math.min(slider.end, Math.max(0, value))
}
window.hydiff_keys = (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return
    const e = focused(), view = Bokeh.index.find_one(figure), {key} = event
    const step = event.shiftKey ? 10 : 1
    let host = e
    while (host && host != view?.el) host = host.parentNode ?? host.host
    const on_picture = view && host == view.el
    const actions = {
        ArrowUp: () => move(-step, 0), ArrowDown: () => move(step, 0),
        ArrowLeft: () => move(0, -step), ArrowRight: () => move(0, step),
        Enter: () => cursor.data.x.length
            && send(key, Math.floor(cursor.data.y[0]), Math.floor(cursor.data.x[0])),
        "[": () => swipe(-0.02), "]": () => swipe(0.02),
        "+": () => zoom(0.8), "-": () => zoom(1.25), 0: () => view.reset(),
    }
    const field = e?.matches?.("input, select, textarea, [role=slider]")
    if (on_picture && key in actions) actions[key]()
    else if (!field && "<>gmf".includes(key) && key.length == 1) send(key)
    else return
    event.preventDefault()
}
if (!window.hydiff_listens) document.addEventListener("keydown", (e) => window.hydiff_keys(e))
window.hydiff_listens = true
