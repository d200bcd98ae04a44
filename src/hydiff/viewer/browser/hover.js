// send one message to Python per pixel that the mouse enters, not per move of the mouse
const row = Math.floor(cb_obj.y), col = Math.floor(cb_obj.x)
if (at.data.row[0] != row || at.data.col[0] != col) at.data = {row: [row], col: [col]}
