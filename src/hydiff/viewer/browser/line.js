// move the line and its grip with the slider
for (const span of spans) span.location = slider.value
grip.data.x[0] = slider.value
grip.change.emit()
