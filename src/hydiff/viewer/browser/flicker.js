// Show the pictures of `turns` in turn right of the line, each for 0.4 s (fewer than three flashes a
// second).  The original picture is kept in `turns.own`, and restored when there are no more turns.
clearInterval(turns.timer)
const put = (picture) => {
    pair.data.after[0] = picture
    compose.execute(pair)
}
if (turns.own) put(turns.own)
turns.own = null
const pictures = turns.data.after
if (pictures.length) {
    turns.own = pair.data.after[0]
    turns.number = 0
    turns.timer = setInterval(() => put(pictures[turns.number++ % pictures.length]), 400)
}
