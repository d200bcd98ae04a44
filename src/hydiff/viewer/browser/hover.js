// one message to Python for each pixel that is entered, not for each move of the mouse
const row = Math.floor(cb_obj.y), col = Math.floor(cb_obj.x)
if (at.data.row[0] != row || at.data.col[0] != col) at.data = {row: [row], col: [col]}
