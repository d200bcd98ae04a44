// Combine "before" left of the line and "after" right of it, without asking Python.  The picture is
// changed in place, because a new one would be sent back to Python.
const [before, after] = [pair.data.before[0], pair.data.after[0]]
const out = new after.constructor(after, after.shape)
if (before.length) {
    const [height, width] = after.shape
    const share = (slider.value - pair.data.x[0]) / pair.data.dw[0]
    const cut = Math.round(Math.min(1, Math.max(0, share)) * width)
    const plain = new Uint32Array(before.buffer, before.byteOffset, before.length)
    for (let start = 0; start < height * width; start += width)
        out.set(plain.subarray(start, start + cut), start)
}
Object.assign(shown.data, pair.data, {image: [out]})
shown.change.emit()
