"""Run by the Python of QGIS, in a folder with scene.bsq and truth.bsq: what the plugin does there.

`python3 qgis_session.py PLUGINS` prints one JSON object; test_qgis.py reads it.
"""

import json
import sys
from pathlib import Path

from qgis.core import (
    QgsApplication,
    QgsProcessingContext,
    QgsProcessingException,
    QgsProcessingFeedback,
    QgsProject,
)

qgis = QgsApplication([], True)
qgis.initQgis()
sys.path[:0] = [sys.argv[1], f"{QgsApplication.pkgDataPath()}/python/plugins"]

import hydiff_qgis  # noqa: E402
import processing  # noqa: E402
from processing.core.Processing import Processing  # noqa: E402
from processing.core.ProcessingConfig import ProcessingConfig  # noqa: E402
from processing.gui.Postprocessing import handleAlgorithmResults  # noqa: E402

Processing.initialize()
plugin = hydiff_qgis.classFactory(None)
plugin.initProcessing()


def names():
    return sorted(path.name for path in Path().iterdir())


def loaded():
    """A fill whose results are loaded as the toolbox does it: the two layers."""
    project, feedback = QgsProject.instance(), Log()
    context = QgsProcessingContext()
    context.setProject(project)
    for name in ("filled.bsq", "sigma.tif"):
        details = QgsProcessingContext.LayerDetails(name, project, name)
        context.addLayerToLoadOnCompletion(str(Path(name).absolute()), details)
    places = {"OUTPUT": "filled.bsq", "SIGMA": "sigma.tif"}
    places = {k: str(Path(v).absolute()) for k, v in places.items()}
    algorithm = QgsApplication.processingRegistry().createAlgorithmById("hydiff:fill")
    words = {"INPUT": "scene.bsq", "METHOD": "smooth", "OPTIONS": "--tile 16", **places}
    algorithm.run(words, context, feedback)
    handleAlgorithmResults(algorithm, context, feedback, parameters=words)
    layers = {layer.name(): layer for layer in project.mapLayers().values()}
    cube, sigma = layers["filled.bsq"], layers["sigma.tif"]
    return {
        "progress": feedback.progress_values,
        "bands": cube.renderer().usesBands(),
        "wavelength": cube.customProperty("QGISPAM/band/2//wavelength"),
        "sigma": [sigma.renderer().type(), sigma.renderer().classificationMin()],
    }


class Log(QgsProcessingFeedback):
    """Keeps what is reported; cancels at the first progress if asked to."""

    def __init__(self, cancels=False):
        super().__init__(False)
        self.progress_values = []
        self.progressChanged.connect(self.note)
        self.cancels = cancels

    def note(self, value):
        self.progress_values.append(value)
        if self.cancels and value > 0:
            self.cancel()


def cancelled():
    """What a cancelled fill answers, and the files before and after it."""
    before = names()
    words = {"INPUT": "scene.bsq", "METHOD": "smooth", "OPTIONS": "--tile 12"}
    words |= {"OUTPUT": str(Path("never.bsq").absolute())}
    feedback = Log(cancels=True)
    found = processing.run("hydiff:fill", words, feedback=feedback)
    return {"found": found, "asked": feedback.isCanceled(), "new": sorted({*names()} - {*before})}


def refused(name, **words):
    try:
        processing.run(f"hydiff:{name}", words)
    except QgsProcessingException as error:
        return str(error)


page = str(Path("page.html").absolute())
answers = {
    "loaded": loaded(),
    "cancelled": cancelled(),
    "gaps": processing.run("hydiff:gaps", {"INPUT": "scene.bsq", "PAGE": page}),
    "score": processing.run("hydiff:score", {"FILLED": "filled.bsq", "TRUTH": "truth.bsq"}),
    "mask": processing.run("hydiff:mask", {"INPUT": "scene.bsq", "OUTPUT": "mask.tif"}),
    "refused": refused("fill", INPUT="scene.bsq", OPTIONS="--max-gap many", OUTPUT="no.bsq"),
}
ProcessingConfig.setSettingValue("HYDIFF_PROGRAM", "no-such-program")
answers["absent"] = refused("gaps", INPUT="scene.bsq")
print(json.dumps(answers))
