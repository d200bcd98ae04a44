// What is in sight is sent when it has stopped moving.
clearTimeout(sight.waiting)
sight.waiting = setTimeout(() => {
    const {x_range, y_range, inner_width, inner_height} = figure
    const dense = window.devicePixelRatio
    sight.data = {
        top: [Math.min(y_range.start, y_range.end)], bottom: [Math.max(y_range.start, y_range.end)],
        left: [x_range.start], right: [x_range.end],
        high: [inner_height * dense], wide: [inner_width * dense],
    }
}, 200)
