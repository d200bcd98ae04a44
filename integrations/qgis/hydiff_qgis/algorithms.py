"""The algorithms: each builds the words of one `hydiff` command."""

import html
import json
import shlex
import shutil
import tempfile
from glob import escape
from pathlib import Path

from osgeo import gdal
from qgis.core import (
    QgsProcessing,
    QgsProcessingAlgorithm,
    QgsProcessingException,
    QgsProcessingOutputNumber,
    QgsProcessingParameterDefinition,
    QgsProcessingParameterEnum,
    QgsProcessingParameterExtent,
    QgsProcessingParameterFileDestination,
    QgsProcessingParameterMapLayer,
    QgsProcessingParameterNumber,
    QgsProcessingParameterRasterDestination,
    QgsProcessingParameterRasterLayer,
    QgsProcessingParameterString,
    QgsProviderRegistry,
)

from .command import forget, run
from .styles import show_cube, show_errors, show_mask, style

METHODS = [
    "auto",
    "smooth",
    "harmonic",
    "biharmonic",
    "linear",
    "idw",
    "nearest",
    "spectral",
    "tension",
]
BUDGETS = ["fast", "normal", "best"]
SCORES = {"NRMSE": "nrmse", "SAM": "sam", "MPSNR": "mpsnr"}  # of the missing entries
CENSUS = {"MISSING": "missing", "GAPS": "n_gaps", "WIDEST": "widest"}


class HydiffAlgorithm(QgsProcessingAlgorithm):
    """One command of `hydiff`.  Subclasses give `title`, `about`, parameters and the words."""

    title = about = ""

    def name(self):
        return type(self).__name__.lower()

    def displayName(self):
        return self.title

    def shortHelpString(self):
        return self.about

    def createInstance(self):
        return type(self)()

    def icon(self):
        return self.provider().icon() if self.provider() else super().icon()

    def add_raster(self, name, text, optional=False):
        self.addParameter(QgsProcessingParameterRasterLayer(name, text, optional=optional))

    def add_number(self, name, text):
        kind = QgsProcessingParameterNumber.Double
        self.addParameter(QgsProcessingParameterNumber(name, text, kind, optional=True))

    def path(self, layer):
        """The file of a layer."""
        parts = QgsProviderRegistry.instance().decodeUri(layer.providerType(), layer.source())
        path = parts.get("path", "")
        if not Path(path).is_file():
            raise QgsProcessingException(
                f"the layer {layer.name()} is not a file on this computer, expected one; save it "
                "as a GeoTIFF or GeoJSON first"
            )
        return path

    def raster(self, parameters, name, context):
        layer = self.parameterAsRasterLayer(parameters, name, context)
        if layer is None:
            raise QgsProcessingException(self.invalidRasterError(parameters, name))
        return self.path(layer)

    def number(self, parameters, name, flag, context):
        """The words of an option that is a number."""
        if parameters.get(name) is None:
            return []
        return [flag, repr(self.parameterAsDouble(parameters, name, context))]


class Fill(HydiffAlgorithm):
    title = "Fill gaps"
    about = (
        "Fills missing pixels and bands of a hyperspectral raster from the raster itself. Measured "
        "values are kept bit for bit. The 1-sigma error of each filled value becomes a raster too. "
        "Missing is what the file declares (nodata, NaN), the value given here, and what the mask "
        "covers: polygons, or a raster that is 1 where values are missing."
    )

    def initAlgorithm(self, configuration=None):
        self.add_raster("INPUT", "Raster with gaps")
        self.addParameter(_enum("METHOD", "Method", METHODS, "auto"))
        self.addParameter(_enum("BUDGET", "Effort of the method auto", BUDGETS, "normal"))
        self.add_number("NODATA", "Value that means missing, if the file does not declare it")
        kinds = [QgsProcessing.TypeRaster, QgsProcessing.TypeVectorPolygon]
        about = "Also missing: polygons, or a raster of 0 and 1"
        self.addParameter(QgsProcessingParameterMapLayer("MASK", about, optional=True, types=kinds))
        self.addParameter(QgsProcessingParameterExtent("EXTENT", "Fill only here", optional=True))
        self.add_number("MAX_GAP", "Leave gaps wider than this, in pixels")
        more = QgsProcessingParameterString("OPTIONS", "More options of hydiff fill", optional=True)
        more.setFlags(more.flags() | QgsProcessingParameterDefinition.FlagAdvanced)
        self.addParameter(more)
        self.addParameter(QgsProcessingParameterRasterDestination("OUTPUT", "Filled raster"))
        self.addParameter(
            QgsProcessingParameterRasterDestination("SIGMA", "Error of filled values", None, True)
        )

    def processAlgorithm(self, parameters, context, feedback):
        output = self.parameterAsOutputLayer(parameters, "OUTPUT", context)
        sigma = self.parameterAsOutputLayer(parameters, "SIGMA", context)
        words = [*self.words(parameters, context, bool(sigma)), "-o", output, "--overwrite"]
        if run([*words, "--json"], feedback, (0, 90)) is None:
            forget(output)
            return {}
        style(context, output, show_cube)
        if not sigma:
            return {"OUTPUT": output}
        filled = Path(output)
        if not any(filled.parent.glob(f"{escape(filled.name)}.sigma.*")):
            feedback.pushWarning("this method gives no errors; auto and smooth do")
            return {"OUTPUT": output}
        if _write_sigma(output, sigma, feedback) is None:
            return {}
        style(context, sigma, show_errors)
        return {"OUTPUT": output, "SIGMA": sigma}

    def words(self, parameters, context, error_bars):
        layer = self.parameterAsRasterLayer(parameters, "INPUT", context)
        method = self.parameterAsEnumString(parameters, "METHOD", context)
        words = ["fill", self.raster(parameters, "INPUT", context), "--method", method]
        if method == "auto":
            words += ["--budget", self.parameterAsEnumString(parameters, "BUDGET", context)]
        elif method == "smooth" and error_bars:
            words += ["--set", "error_bars=true"]
        words += self.number(parameters, "NODATA", "--nodata", context)
        words += self.number(parameters, "MAX_GAP", "--max-gap", context)
        mask = self.parameterAsLayer(parameters, "MASK", context)
        if mask is not None:
            words += ["--missing", self.path(mask)]
        box = self.parameterAsExtent(parameters, "EXTENT", context, layer.crs())
        if not box.isNull():
            edges = (box.xMinimum(), box.yMinimum(), box.xMaximum(), box.yMaximum())
            words += ["--region", ",".join(map(repr, edges))]
        return words + shlex.split(self.parameterAsString(parameters, "OPTIONS", context))


def _write_sigma(output, sigma, feedback):
    """The errors beside a fill as a GeoTIFF; None if it was cancelled."""
    beside = f"{output}.sigma{Path(output).suffix}"
    if Path(beside).exists():  # else it is an array, by the option --compact
        return gdal.Translate(sigma, beside)
    with tempfile.TemporaryDirectory(dir=Path(sigma).parent) as folder:
        copy = Path(folder) / "layers.tif"
        done = run(["convert", output, copy], feedback, (90, 100))
        if done is not None:
            shutil.move(f"{copy}.sigma.tif", sigma)
        return done


class Mask(HydiffAlgorithm):
    title = "Mask of gaps and suspected damage"
    about = (
        "Writes a raster that is 1 where values are missing or look damaged (dead columns, "
        "outliers); one band, or as many as the input where bands differ. The log lists what was "
        "found. Use it as the mask of a fill."
    )

    def initAlgorithm(self, configuration=None):
        self.add_raster("INPUT", "Raster")
        self.add_number("NODATA", "Value that means missing, if the file does not declare it")
        self.addParameter(QgsProcessingParameterRasterDestination("OUTPUT", "Mask"))

    def processAlgorithm(self, parameters, context, feedback):
        output = self.parameterAsOutputLayer(parameters, "OUTPUT", context)
        words = ["mask", self.raster(parameters, "INPUT", context), "-o", output, "--overwrite"]
        lines = run(words + self.number(parameters, "NODATA", "--nodata", context), feedback)
        if lines is None:
            return {}
        feedback.pushInfo(lines)
        style(context, output, show_mask)
        return {"OUTPUT": output}


class Page(HydiffAlgorithm):
    """An algorithm that answers with numbers and a page about them."""

    numbers = None  # output -> its key in the JSON of hydiff

    def add_outputs(self):
        for name in self.numbers:
            self.addOutput(QgsProcessingOutputNumber(name, name.capitalize()))
        page = QgsProcessingParameterFileDestination("PAGE", "Page", "HTML (*.html)", None, True)
        self.addParameter(page)

    def answer(self, parameters, context, facts):
        """The numbers, and the page where one was asked for."""
        page = self.parameterAsFileOutput(parameters, "PAGE", context)
        found = {name: facts.get(key) for name, key in self.numbers.items()}
        if page:
            Path(page).write_text(_table(self.title, facts), encoding="utf-8")
            found["PAGE"] = page
        return found


class Gaps(Page):
    title = "Gap census"
    about = "Counts what is missing: entries, gaps, the widest gap, full lines and columns."
    numbers = CENSUS

    def initAlgorithm(self, configuration=None):
        self.add_raster("INPUT", "Raster")
        self.add_number("NODATA", "Value that means missing, if the file does not declare it")
        self.add_outputs()

    def processAlgorithm(self, parameters, context, feedback):
        words = ["mask", self.raster(parameters, "INPUT", context), "--json"]
        found = run(words + self.number(parameters, "NODATA", "--nodata", context), feedback)
        if found is None:
            return {}
        return self.answer(parameters, context, json.loads(found))


class Score(Page):
    title = "Score a fill against the truth"
    about = "Scores of the filled entries: error by band (NRMSE), spectral angle (SAM), MPSNR."
    numbers = SCORES

    def initAlgorithm(self, configuration=None):
        self.add_raster("FILLED", "Filled raster")
        self.add_raster("TRUTH", "Truth")
        self.add_outputs()

    def processAlgorithm(self, parameters, context, feedback):
        files = [self.raster(parameters, name, context) for name in ("FILLED", "TRUTH")]
        found = run(["score", *files, "--json"], feedback)
        if found is None:
            return {}
        return self.answer(parameters, context, json.loads(found)["missing"])


class Report(HydiffAlgorithm):
    title = "Report of a fill"
    about = "One page about a fill: pictures, spectra, error bars, what was decided and why."

    def initAlgorithm(self, configuration=None):
        self.add_raster("FILLED", "Filled raster")
        self.add_raster("TRUTH", "Truth", optional=True)
        self.addParameter(QgsProcessingParameterFileDestination("PAGE", "Page", "HTML (*.html)"))

    def processAlgorithm(self, parameters, context, feedback):
        page = self.parameterAsFileOutput(parameters, "PAGE", context)
        words = ["report", self.raster(parameters, "FILLED", context), "-o", page, "--overwrite"]
        if parameters.get("TRUTH") is not None:
            words += ["--truth", self.raster(parameters, "TRUTH", context)]
        return {} if run(words, feedback) is None else {"PAGE": page}


ALGORITHMS = (Fill, Gaps, Mask, Score, Report)


def _enum(name, text, options, default):
    return QgsProcessingParameterEnum(
        name, text, options, defaultValue=default, usesStaticStrings=True
    )


def _table(title, facts):
    """A page with the facts that fit into a line each."""
    short = {k: v for k, v in facts.items() if not isinstance(v, (list, dict)) or len(str(v)) < 200}
    rows = (f"<tr><th>{html.escape(str(k))}<td>{html.escape(str(v))}" for k, v in short.items())
    head = f"<!doctype html><meta charset='utf-8'><title>{html.escape(title)}</title>"
    return f"{head}<h1>{html.escape(title)}</h1><table>{''.join(rows)}</table>"
