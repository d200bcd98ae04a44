"""The plugin and its Processing provider."""

from pathlib import Path

from processing.core.ProcessingConfig import ProcessingConfig, Setting
from qgis.core import QgsApplication, QgsProcessingProvider
from qgis.PyQt.QtGui import QIcon

from .algorithms import ALGORITHMS
from .command import SETTING

EXTENSIONS = ["tif", "img", "bsq", "bil", "bip", "dat"]  # GeoTIFF and ENVI


class Plugin:
    """What QGIS loads."""

    def __init__(self):
        self.provider = None

    def initProcessing(self):
        self.provider = HydiffProvider()
        QgsApplication.processingRegistry().addProvider(self.provider)

    def initGui(self):
        self.initProcessing()

    def unload(self):
        if self.provider is not None:
            QgsApplication.processingRegistry().removeProvider(self.provider)


class HydiffProvider(QgsProcessingProvider):
    def id(self):
        return "hydiff"

    def name(self):
        return "hydiff"

    def icon(self):
        return QIcon(str(Path(__file__).with_name("icon.svg")))

    def load(self):
        about = "Path of the program `hydiff`; empty: search in PATH"
        ProcessingConfig.addSetting(Setting(self.name(), SETTING, about, ""))
        ProcessingConfig.readSettings()
        self.refreshAlgorithms()
        return True

    def unload(self):
        ProcessingConfig.removeSetting(SETTING)

    def loadAlgorithms(self):
        for algorithm in ALGORITHMS:
            self.addAlgorithm(algorithm())

    def supportedOutputRasterLayerExtensions(self):
        return EXTENSIONS
