"""How results are shown: wavelengths, colours near those of the eye, errors on a ramp."""

from osgeo import gdal
from qgis.core import (
    QgsColorRampShader,
    QgsContrastEnhancement,
    QgsMultiBandColorRenderer,
    QgsPalettedRasterRenderer,
    QgsProcessingLayerPostProcessorInterface,
    QgsRasterBandStats,
    QgsRasterMinMaxOrigin,
    QgsRasterShader,
    QgsSingleBandPseudoColorRenderer,
    QgsStyle,
)
from qgis.PyQt.QtGui import QColor

RED_GREEN_BLUE = (650.0, 550.0, 470.0)  # nm
TOLERANCE = 60.0  # nm between a colour and its band; farther off, bands are spread evenly
TO_NM = {"nm": 1.0, "nanometers": 1.0, "nanometres": 1.0, "um": 1e3, "µm": 1e3}
TO_NM.update({"micrometers": 1e3, "micrometres": 1e3, "microns": 1e3})


def wavelengths(path):
    """The wavelength of each band in nm, by the tags of the bands; [] if one has none."""
    dataset = gdal.Open(path)
    if dataset is None:
        return []
    tags = [dataset.GetRasterBand(i + 1).GetMetadata() for i in range(dataset.RasterCount)]
    try:
        return [float(t["wavelength"]) * TO_NM[t["wavelength_units"].lower()] for t in tags]
    except (KeyError, ValueError):
        return []


def set_wavelengths(layer, values):
    """Where the EnMAP-Box and other plugins look for them."""
    for number, value in enumerate(values, start=1):
        layer.setCustomProperty(f"QGISPAM/band/{number}//wavelength", value)
        layer.setCustomProperty(f"QGISPAM/band/{number}//wavelength_units", "nm")


def colour_bands(values, count):
    """Three band numbers from 1: nearest to red, green and blue, or spread over all bands."""
    nearest = [min(range(len(values)), key=lambda i, c=c: abs(values[i] - c), default=None)
               for c in RED_GREEN_BLUE]  # fmt: skip
    if values and all(abs(values[i] - c) <= TOLERANCE for i, c in zip(nearest, RED_GREEN_BLUE)):
        return [i + 1 for i in nearest]
    return [3 * count // 4 + 1, count // 2 + 1, count // 4 + 1]


def show_cube(layer):
    """Three bands as colours, stretched between the 2nd and 98th percentile."""
    values, count = wavelengths(layer.source()), layer.bandCount()
    set_wavelengths(layer, values)
    if count >= 3:
        bands = colour_bands(values, count)
        layer.setRenderer(QgsMultiBandColorRenderer(layer.dataProvider(), *bands))
    layer.setContrastEnhancement(
        QgsContrastEnhancement.StretchToMinimumMaximum, QgsRasterMinMaxOrigin.CumulativeCut
    )


def show_errors(layer):
    """One band of σ from 0 to its largest value; measured pixels are transparent."""
    values, count = wavelengths(layer.source()), layer.bandCount()
    set_wavelengths(layer, values)
    band = colour_bands(values, count)[1]
    statistics = layer.dataProvider().bandStatistics(band, QgsRasterBandStats.Max)
    largest = statistics.maximumValue
    if not 0 < largest < float("inf"):
        return
    ramp = QgsStyle.defaultStyle().colorRamp("Viridis")
    function = QgsColorRampShader(0.0, largest, ramp, QgsColorRampShader.Interpolated)
    function.classifyColorRamp(5)
    shader = QgsRasterShader()
    shader.setRasterShaderFunction(function)
    renderer = QgsSingleBandPseudoColorRenderer(layer.dataProvider(), band, shader)
    renderer.setClassificationMin(0.0)
    renderer.setClassificationMax(largest)
    layer.setRenderer(renderer)


def show_mask(layer):
    """Missing pixels in red, others transparent."""
    classes = [(0, QColor(0, 0, 0, 0), "measured"), (1, QColor(200, 30, 30), "missing")]
    classes = [QgsPalettedRasterRenderer.Class(*entry) for entry in classes]
    layer.setRenderer(QgsPalettedRasterRenderer(layer.dataProvider(), 1, classes))


ALIVE = []  # stylers: QGIS keeps no reference of its own


class Styler(QgsProcessingLayerPostProcessorInterface):
    """Called by QGIS, in its main thread, when a result is loaded."""

    def __init__(self, show):
        super().__init__()
        self.show = show

    def postProcessLayer(self, layer, context, feedback):
        self.show(layer)
        layer.triggerRepaint()


def style(context, path, show):
    """Have the result at a path shown by a function of this module, if it will be loaded."""
    if context.willLoadLayerOnCompletion(path):
        styler = Styler(show)
        ALIVE.append(styler)
        context.layerToLoadOnCompletionDetails(path).setPostProcessor(styler)
