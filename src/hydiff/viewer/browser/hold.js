// Bokeh takes a button that is held still for 300 ms for a press, which nothing here answers, and a
// drag after it for nothing: with a slow hand or a busy machine the line would not follow.
const view = Bokeh.index.find_one(cb_obj.origin)
const {ui_gestures} = view.canvas_view.ui_event_bus
ui_gestures.constructor.press_threshold = 1e9
// The line can be taken at its grip, too, which is 24 px wide.
for (const part of view.all_renderer_views)
    if (part.model.type == "Span" && part.model.editable)
        part._hit_test = (x) => Math.abs(x - part.line.p0.x) <= 12 ? "edge" : null
