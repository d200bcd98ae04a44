"""The path of a fill through the files of the package: repeated work, and returns to files.

    PYTHONPATH=SRC python benchmarks/trace.py --label before

Counts the calls of functions of hydiff (sys.setprofile) in three fills by `hydiff fill`, each in a
new process: a small ENVI file with `smooth`, with `auto` at budget fast, and by tiles with
`smooth`.  The rows go to results/trace.csv under the label; rows of other labels stay.

reads, sniffs, looks, checks, plans   calls of the functions in COUNTED; empty if the code has none
                                      of them: if they were renamed, add the new names there
reads_per_tile                        reads of the fill by tiles, divided by the number of tiles
calls, files                          calls of functions of hydiff, and files that contain these;
                                      `auto` varies by a few calls, as its threads share a cache
returns, returns_all                  calls that return to a file already left, without callbacks

Returns are counted as follows: list the files of the called functions in the order of the calls in
the main thread, and merge consecutive calls of one file.  The number of returns is the length of
this list minus the number of different files.  The list does not include

- calls that are not by name: modules while they are imported, comprehensions, lambdas, properties,
  special methods (`__getitem__`), and generators that continue (their start counts);
- callbacks: calls by other packages (typer, a pool) that got the function as an argument; and calls
  of a function that is an argument of its caller or a variable in the caller's closure: the
  function itself, a method, in a `partial`, or in a tuple, list or dict.  For calls through
  contextlib, functools and code of dataclasses, the caller is the function that called these;
- in `returns` only: the second and further calls from one line of code to one function, as loops
  over bands or names depend on the data, not on the structure.  `returns_all` includes them.
"""

import argparse
import functools
import inspect
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import types
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "trace.csv"
# column -> module.function, * for any; where a function is renamed, add its new name
COUNTED = {
    "reads": ("hydiff.io.open_as",),  # opens a cube
    "sniffs": ("hydiff.io._recognise",),  # finds the format of a file
    "looks": ("hydiff.io.*.matches",),  # checks whether a file has one format
    "checks": ("hydiff.request.Request.check",),  # rejects requests that a method does not support
    "plans": ("hydiff.scale.plan.make_plan",),  # checks input, output and request of one fill
}
FILLS = {
    "smooth": ["--method", "smooth"],
    "auto": ["--budget", "fast"],
    "tiles": ["--method", "smooth", "--tile", "16"],
}
SHAPE = (16, 32, 64)  # bands, rows, cols: 8 tiles
ABOUT = ("tiles", "reads_per_tile", "calls", "files", "returns", "returns_all")
COLUMNS = ("code", "fill", *COUNTED, *ABOUT)
THROUGH = ("contextlib.py", "functools.py", "<string>")
MOST = 50  # most members of a container that are searched


class Trace:
    """A profile function that keeps the calls of a package, given its folder."""

    def __init__(self, package):
        self.package = f"{package}{os.sep}"
        self.names = Counter()  # calls, by module.function
        self.steps = []  # (file, function, line that calls it), without callbacks
        self.started = {}  # frames of generators; stored, so that their ids are not used again

    def __call__(self, frame, event, arg):
        code = frame.f_code
        if event != "call" or not self.ours(frame) or unnamed(frame):
            return
        if self.goes_on(frame) or self.imports(frame):
            return
        self.names[f"{frame.f_globals['__name__']}.{code.co_qualname}"] += 1
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename.endswith(THROUGH):
            caller = caller.f_back
        if threading.current_thread() is not threading.main_thread() or caller is None:
            return
        if self.ours(caller) and not handed(caller, code):
            self.steps.append((code.co_filename, code, (caller.f_code, caller.f_lineno)))

    def ours(self, frame):
        return frame.f_code.co_filename.startswith(self.package)

    def goes_on(self, frame):
        """Whether it is a generator that was started before."""
        if not frame.f_code.co_flags & inspect.CO_GENERATOR:
            return False
        before = id(frame) in self.started
        self.started[id(frame)] = frame
        return before

    def imports(self, frame):
        """Whether it is called by a module that is being imported."""
        while frame is not None:
            code = frame.f_code
            module = code.co_name == "<module>" and self.ours(frame)
            if module and not code.co_filename.endswith("__main__.py"):
                return True
            frame = frame.f_back
        return False

    def returns(self, once):
        """How often a file is come back to; once: each line that calls a function counts once."""
        steps = dict.fromkeys(self.steps) if once else self.steps
        files = [file for file, _, _ in steps]
        runs = [file for i, file in enumerate(files) if i == 0 or files[i - 1] != file]
        return len(runs) - len(set(runs))


def unnamed(frame):
    """Whether it is a comprehension, a lambda, a special method or a property."""
    code = frame.f_code
    if code.co_name.endswith(">") or code.co_name.startswith("__"):
        return True
    own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    found = inspect.getattr_static(type(own), code.co_name, None)
    return isinstance(found, property)


def handed(caller, code):
    """Whether a frame has the function with this code from its arguments or from around it."""
    own = caller.f_code
    variadic = bool(own.co_flags & inspect.CO_VARARGS) + bool(own.co_flags & inspect.CO_VARKEYWORDS)
    arguments = own.co_varnames[: own.co_argcount + own.co_kwonlyargcount + variadic]
    known = caller.f_locals
    values = (known[name] for name in (*arguments, *own.co_freevars) if name in known)
    return any(found is code for value in values for found in codes(value))


def codes(value, depth=1):
    """The code of a function, or of those that a value holds."""
    while isinstance(value, functools.partial | types.MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, types.FunctionType):
        yield inspect.unwrap(value).__code__
    elif isinstance(value, tuple | list | dict) and depth and len(value) <= MOST:
        for item in value.values() if isinstance(value, dict) else value:
            yield from codes(item, depth - 1)


def exists(names):
    """Whether some module that was imported has a function of one of these names."""
    for module in [m for key, m in sys.modules.items() if key.split(".")[0] == "hydiff"]:
        own = dict(vars(module))
        for name, value in vars(module).items():
            if isinstance(value, type):
                own |= {f"{name}.{key}": method for key, method in vars(value).items()}
        full = (f"{module.__name__}.{name}" for name, value in own.items() if callable(value))
        if any(fnmatchcase(name, pattern) for name in full for pattern in names):
            return True
    return False


def figures(arguments):
    """What one fill counts, in this process."""
    import hydiff

    trace = Trace(Path(hydiff.__file__).parent)
    sys.argv = ["hydiff", "fill", *arguments]
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        runpy.run_module("hydiff", run_name="__main__", alter_sys=True)
    except SystemExit as done:
        if done.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found = {}
    for column, names in COUNTED.items():
        calls = (n for name, n in trace.names.items() if any(fnmatchcase(name, k) for k in names))
        found[column] = sum(calls) if exists(names) else ""
    found |= {"calls": trace.names.total(), "files": len({file for file, _, _ in trace.steps})}
    return found | {"returns": trace.returns(once=True), "returns_all": trace.returns(once=False)}


def traced(fill, folder):
    """The row of a fill, made in a process of its own."""
    out = folder / f"{fill}.img"
    command = [sys.executable, __file__, "--fill", str(folder / "in.img"), "-o", str(out)]
    said = subprocess.check_output([*command, *FILLS[fill]], text=True)
    row = {"fill": fill, **json.loads(said.splitlines()[-1])}
    tiles = json.loads(out.with_name(f"{out.name}.fill.json").read_text()).get("tiles")
    if tiles:
        row |= {"tiles": tiles["filled"]}
        row |= {"reads_per_tile": row["reads"] and round(row["reads"] / tiles["filled"], 2)}
    return row


def main():
    import numpy as np

    import hydiff
    from hydiff.bench import records
    from kept_inputs import LOST, crop, envi

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--label", required=True, help="of this code, in the table")
    label = parser.parse_args().label
    values = crop(np.asarray(hydiff.sample().values), *SHAPE)
    values[:, 14:18] = LOST
    with tempfile.TemporaryDirectory() as name:
        envi(Path(name) / "in.img", values, data_ignore_value=LOST)
        rows = [{"code": label, **traced(fill, Path(name))} for fill in FILLS]
    kept = [row for row in records.read(RESULTS) if row["code"] != label]
    records.write(RESULTS, [*kept, *rows], COLUMNS)
    print(RESULTS.read_text(), end="")
    print(f"hydiff is {Path(hydiff.__file__).parent}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fill"]:
        print(json.dumps(figures(sys.argv[2:])))
    else:
        main()
