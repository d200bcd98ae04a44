// Bokeh treats a button held still for 300 ms as a press, which has no handler here, and ignores a
// drag that follows: with a slow hand or on a busy machine the line would not move.  Disable presses.
const view = Bokeh.index.find_one(cb_obj.origin)
const {ui_gestures} = view.canvas_view.ui_event_bus
ui_gestures.constructor.press_threshold = 1e9
// Let the line be dragged by its grip, too, which is 24 px wide.
for (const part of view.all_renderer_views)
    if (part.model.type == "Span" && part.model.editable)
        part._hit_test = (x) => Math.abs(x - part.line.p0.x) <= 12 ? "edge" : null
