# People and CI call exactly these; each sets up what it needs.
#   make demo     damage the bundled scene, fill it, score and draw the fill
#   make test     format, lint, types, the whole suite; CI also installs the browser for the viewer
#   make quick    the laws that take a minute in all, for the inner loop
#   make docs     the documentation as HTML in docs/_build/html; warnings are errors
#   make wheel    an installable wheel in dist/
#   make release  sdist and wheel in dist/, checked and tried in an empty environment
#   make qgis     the plugin of QGIS as a zip, in dist/
#   make coverage the share of src that the suite runs, and coverage.xml
#   make bench    classical fills: quality and time, into benchmarks/results/
#   make perf     ratios of time to yardsticks, and whether one is 15 % above the baseline
#   make fuzz     hostile files: INPUTS=200000 SEED=1 WORKERS=2
#   make torture  jobs killed and starved: KILLS=200 SEED=1
#   make mutants  one-line faults in src, and whether the tests find them: JOBS=2
#   make audit    known flaws of the pinned packages, where the package index can be reached

VENV := .venv
BIN := $(VENV)/bin
CHROMIUM := which chromium chromium-browser google-chrome 2> /dev/null | grep -q .
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# one thread for each test process, or OpenMP's threads wait for one another
test suite quick fuzz torture mutants: export OMP_NUM_THREADS := 1
# tests start Python a hundred times: it may keep what it compiled, whatever the environment says
test suite quick: export PYTHONDONTWRITEBYTECODE :=
INPUTS := 200000
# what is installed; other Pythons than the tested one may want /dev/null
CONSTRAINTS ?= constraints.txt
DIST := dist
KILLS := 200
SEED := 1
WORKERS := 2
# test processes: one more than cores, as browsers, servers and killed jobs are waited for
TESTERS := 3
JOBS := 2

.PHONY: demo test types suite quick docs wheel release qgis coverage bench perf fuzz torture mutants audit clean

demo: $(VENV)/.ready
	@$(BIN)/hydiff demo

test: $(VENV)/.ready
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory -j 2 types suite

# half a minute on one core where mypy has no cache: beside the tests, not before them
types: $(VENV)/.ready
	@$(BIN)/mypy --no-error-summary

suite: $(VENV)/.ready
	@$(CHROMIUM) || { test "$$CI" = true && apt-get update -qq && apt-get install -qq chromium; } \
		> /dev/null 2>&1 || echo "the viewer's page is not tested: apt-get install chromium first"
	@$(BIN)/python -m pytest -n $(TESTERS) --dist worksteal

quick: $(VENV)/.ready
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m quick

docs: $(VENV)/.ready
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@ls docs/_build/html/index.html

wheel: $(VENV)/.ready
	@$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	@ls dist/*.whl

release: $(VENV)/.ready
	@$(BIN)/python benchmarks/release.py

qgis:
	@mkdir -p $(DIST) && rm -f $(DIST)/hydiff_qgis.zip
	@box=$$(mktemp -d) && cp -r integrations/qgis/hydiff_qgis $$box && cp LICENSE $$box/hydiff_qgis && \
		rm -rf $$box/hydiff_qgis/__pycache__ && out=$$(realpath $(DIST)) && cd $$box && \
		python3 -m zipfile -c $$out/hydiff_qgis.zip hydiff_qgis && rm -r $$box
	@ls $(DIST)/hydiff_qgis.zip

coverage: $(VENV)/.ready
	@$(BIN)/python -m pip install -qq -c $(CONSTRAINTS) coverage pytest-cov
	@$(BIN)/python -m pytest -n 2 --dist worksteal --cov hydiff --cov-report term:skip-covered --cov-report xml

bench: $(VENV)/.ready
	@$(BIN)/python benchmarks/classical.py

perf: $(VENV)/.ready
	@$(BIN)/python benchmarks/perf.py

fuzz: $(VENV)/.ready
	@$(BIN)/python tests/fuzz.py --inputs $(INPUTS) --seed $(SEED) --workers $(WORKERS)
	@$(BIN)/python tests/fuzz_rasters.py --inputs $$(($(INPUTS) / 20)) --seed $(SEED)

torture: $(VENV)/.ready
	@$(BIN)/python tests/torture.py --kills $(KILLS) --seed $(SEED)

mutants: $(VENV)/.ready
	@$(BIN)/python benchmarks/mutants.py --jobs $(JOBS)

audit:
	@python3 benchmarks/audit.py

clean:
	@rm -rf $(VENV) dist hydiff-demo docs/_build docs/reference/cli.md

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once, a minute or two)"
	@python3 -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -c $(CONSTRAINTS) -e ".[dev,scene]"
	@touch $@
