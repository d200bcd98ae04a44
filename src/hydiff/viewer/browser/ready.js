// Give elements that Bokeh shows without a name one for screen readers, also if they appear later;
// show the focus ring of a drawing for the keyboard, but not after a click; and remove the notice that
// the page is not live.
document.getElementById("not-live")?.remove()
const calm = new CSSStyleSheet()
calm.replaceSync(".bk-events:focus:not(:focus-visible) { outline: none }")
const named = (root, parts, name) => {
    for (const part of root.querySelectorAll(parts))
        if (!part.hasAttribute("aria-label")) part.setAttribute("aria-label", name)
}
const label = (root) => {
    const title = root.querySelector(".bk-slider-title")
    if (title) named(root, ".noUi-handle", title.textContent.split(":")[0])
    for (const box of root.querySelectorAll("input[type=checkbox]"))
        box.setAttribute("aria-label", box.nextElementSibling?.textContent.trim() || "Show gaps")
    if (root.querySelector(".bk-events") && !root.adoptedStyleSheets.includes(calm))
        root.adoptedStyleSheets.push(calm)
    named(root, "progress", "Progress of the fill")
    named(root, ".bk-spin-btn-up", "One more")
    named(root, ".bk-spin-btn-down", "One less")
    named(root, ".bk-tool-overflow", "More tools")
    named(root, ".bk-events", "A drawing; the text beside it says what it shows")
    for (const element of root.querySelectorAll("*"))
        if (element.shadowRoot) label(element.shadowRoot)
}
label(document)
document.addEventListener("focusin", () => label(document))
setInterval(() => label(document), 1000)
