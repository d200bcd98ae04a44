"""The weights of the prior: their place, their hash, and the network that they belong to.

`auto` uses those in `learn/weights`, if they are installed; `hydiff train-prior` writes others.
Only `network_of` needs torch.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hydiff.errors import CubeFormatError, UnknownName
from hydiff.io.regular import is_there
from hydiff.learn import weights_file

if TYPE_CHECKING:
    from hydiff.learn.plane_network import PlaneNetwork

LAYOUT = 1  # version of the file format
KIND = weights_file.Kind("hydiff-prior", LAYOUT, "weights of `hydiff train-prior`")
FOLDER = Path(__file__).parent / "weights"
SIZES = ("small", "full")  # for CPUs, and for GPUs
WIDEST = 1024  # a file that names more channels is damaged or hostile


def packaged(size: str) -> Path:
    """Return the path where `auto` looks for the weights of a size; the file may be absent."""
    if size not in SIZES:
        raise UnknownName("size", size, SIZES)
    return FOLDER / f"prior-{size}.safetensors"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file of weights, by which records identify it."""
    if not is_there(path) or path.is_dir():
        if path.parent == FOLDER:
            raise CubeFormatError(
                f"{path.name}, the weights of the prior, is not installed: install hydiff again, "
                "or name others, `hydiff fill --method prior --set weights=FILE`"
            )
        raise CubeFormatError(f"{path}: no such file; `hydiff train-prior` writes one")
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _digest(path: Path, changed: int, size: int) -> str:
    """Return the SHA-256 of a file; the cache notices a change by time (ns) and size (bytes)."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CubeFormatError(
            f"{path}: {error.strerror}; check the file and its permissions"
        ) from None


def size_with(sha256: str) -> str | None:
    """Return the size whose packaged weights have this hash, or None."""
    sizes = (size for size in SIZES if packaged(size).exists())
    return next((size for size in sizes if digest(packaged(size)) == sha256), None)


def network_of(path: Path, device: str) -> PlaneNetwork:
    """Return the network of a file of weights, ready to be applied; it is cached."""
    return _network(path, digest(path), device)


@lru_cache(maxsize=2)
def _network(path: Path, sha256: str, device: str) -> PlaneNetwork:
    """Load the network of a file of weights; the hash `sha256` is a key of the cache."""
    import torch

    from hydiff.learn.plane_network import PlaneNetwork

    about, tensors = weights_file.content(path, KIND)
    settings = about.get("settings")
    width = settings.get("width") if isinstance(settings, dict) else None
    width = weights_file.whole_number(path, KIND, "width", width, WIDEST)
    with torch.device("meta"):  # only names and shapes are needed
        network = PlaneNetwork(width)
    weights_file.check_tensors(path, KIND, tensors, network.state_dict())
    single = {name: tensor.to(device, torch.float32) for name, tensor in tensors.items()}
    network.load_state_dict(single, assign=True)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module in network.modules() if device == "cpu" else ():
        if isinstance(module, torch.nn.Conv2d) and module.kernel_size == (1, 1):
            module.dilation = (2, 2)  # the same kernel, for which torch calls the faster oneDNN
    return network.eval().requires_grad_(False)
