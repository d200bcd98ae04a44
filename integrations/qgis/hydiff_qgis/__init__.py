"""hydiff in QGIS: a Processing provider that runs the installed `hydiff` program."""


def classFactory(iface):
    """Called by QGIS; `iface` is None in qgis_process."""
    from .provider import Plugin

    return Plugin()
