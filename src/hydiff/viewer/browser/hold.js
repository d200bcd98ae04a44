// Bokeh takes a button that is held still for 300 ms for a press, which nothing here answers, and a
// drag after it for nothing: with a slow hand or a busy machine the line would not follow.
const {ui_gestures} = Bokeh.index.find_one(cb_obj.origin).canvas_view.ui_event_bus
ui_gestures.constructor.press_threshold = 1e9
