// Send the part in view to Python once it has stopped changing.
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
