"""Known vulnerabilities of the pinned packages, from the package index: `make audit`.

python benchmarks/audit.py [SERVICE]   exit code 0: none, 1: some, 3: the service was not reached
"""

import json
import sys
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).parents[1]
SERVICE = "https://pypi.org/pypi"  # answers /NAME/VERSION/json with `vulnerabilities`
SECONDS = 20.0


def pinned(text):
    """(name as the index spells it, version) of lines such as `name==version`."""
    lines = [line.split()[0] for line in text.splitlines() if "==" in line and line[0] != "#"]
    pairs = (line.split("==") for line in lines)
    return [(name.lower().replace("_", "-"), version) for name, version in pairs]


def flaws(name, version, service):
    """A line for each flaw that is not withdrawn, with the versions that fix it."""
    with urlopen(f"{service}/{name}/{version}/json", timeout=SECONDS) as reply:
        known = json.loads(reply.read())["vulnerabilities"]
    for flaw in known:
        if not flaw.get("withdrawn"):
            fixed = ", ".join(flaw.get("fixed_in") or ()) or "no version"
            names = ", ".join([flaw["id"], *flaw.get("aliases", ())])
            yield f"{name} {version}: {names}; fixed in {fixed}"


def main(service=SERVICE):
    packages = pinned((ROOT / "constraints.txt").read_text())
    found = []
    for name, version in packages:
        try:
            found += flaws(name, version.partition("+")[0], service)
        except (OSError, ValueError, KeyError) as error:
            print(f"not audited: {service} tells nothing of {name} {version} ({error})")
            return 3
    print(*found, f"{len(packages)} packages audited, {len(found)} known flaws", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
