# Each target sets up what it needs by itself; run any of them on a fresh machine.
.PHONY: setup demo test check versions docs release bench bench-quick bench-profile bench-record chaos mutants clean format lock settings
BIN := .venv/bin
RUN := .venv/.ready-run
DEV := .venv/.ready-dev
COMPILED := $(shell find src -name '*.c')

setup: $(DEV)            ## the development environment in .venv

$(RUN): requirements/run.lock pyproject.toml scripts/setup $(COMPILED)
	@scripts/setup run

$(DEV): requirements/dev.lock requirements/run.lock pyproject.toml scripts/setup $(COMPILED)
	@scripts/setup dev

demo: $(RUN)             ## serve a synthetic web on loopback and crawl it, live
	@$(BIN)/weft demo

test: $(DEV)             ## every test, real servers included
	@scripts/tools
	@scripts/test

check: $(DEV)            ## formatting, lint, types, layering
	@scripts/tools
	@scripts/check

versions: $(DEV)         ## the unit tests on the oldest dependencies, and on Python 3.11 to 3.14
	@scripts/tools
	@scripts/versions

chaos: $(DEV)            ## the long crash campaigns
	@scripts/tools
	@scripts/chaos

mutants: $(DEV)          ## 300 small changes to the code: which of them no test notices
	@scripts/tools
	@scripts/mutants

bench: $(DEV)            ## Weft beside its peers, and what it must reach: three quarters of an hour
	@scripts/tools
	@scripts/bench

bench-quick: $(DEV)      ## the same in three minutes, roughly
	@scripts/tools
	@scripts/bench quick

bench-profile: $(DEV)    ## where a crawl's CPU goes, and that of a page with 100 new links
	@scripts/tools
	@scripts/bench profile

bench-record: $(DEV)     ## puts what was measured last into the docs
	@scripts/bench record

docs: $(DEV)             ## the documentation site, in build/site
	@scripts/tools
	@scripts/docs

release: $(DEV)          ## the sdist and a wheel, in dist/
	@scripts/release

format: $(DEV)           ## put the code into its form
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format --quiet .

settings: $(DEV)         ## what is made of the code: docs/settings.md, docs/reference, the keywords of weft.crawl
	@scripts/settings

lock: $(DEV)             ## resolve the dependencies again
	@scripts/lock

clean:                   ## everything that was made
	rm -rf .venv .tools .bench .mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist weft-data weft-demo
	find . -name __pycache__ -prune -exec rm -rf {} +
