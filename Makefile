# Everything that a person or a CI run does here. "make" alone lists it.

GO ?= go
ARGS ?=

# golangci-lint is built by the go command from its module, like everything else.
golangci = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The modules of the workspace; go.work is the only place that lists them.
modules  = $(shell $(GO) list -m)
packages = $(addsuffix /...,$(modules))
core     = $(firstword $(modules))
trees    = $(shell $(GO) list -m -f '{{.Dir}}/...' | sed 's|^$(CURDIR)|.|')

queue = .work/flights

# What a release is called: the tag, or the commit and how far it is from one.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
PLATFORMS ?=

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: example
example: ## Run the flights example into .work/flights/flights.db (ARGS=--json for one line of JSON)
	@$(GO) run ./examples/flights/layout -root $(queue)
	@echo '$(GO) run ./cmd/semel run examples/flights/flights.yaml --once $(ARGS)' >&2
	@$(GO) run ./cmd/semel run examples/flights/flights.yaml --once $(ARGS)

.PHONY: build
build: ## Build the binary, bin/semel
	$(GO) build -o bin/semel ./cmd/semel

.PHONY: dist
dist: ## Build what a release consists of into dist/: static binaries for five platforms, checksums (VERSION=, PLATFORMS=)
	GO=$(GO) packaging/dist $(VERSION) $(PLATFORMS)

.PHONY: test
test: ## Run all tests; starts real servers, and as root installs them (see go run ./test/servers -h)
	$(GO) run ./test/servers run -- $(GO) test $(packages) $(ARGS)

.PHONY: test-mysql
test-mysql: ## Run the tests of mysqlstore on MySQL 9, from Debian's unstable suite (make test has MariaDB)
	$(GO) run ./test/servers run mysql -- $(GO) test -count 1 ./test/mysqlstore -kind mysql $(ARGS)

.PHONY: servers-up servers-down
servers-up: ## Start the servers of the tests in the background, for work by hand, and print their addresses
	@$(GO) run ./test/servers up $(ARGS)

servers-down: ## Stop what servers-up started
	@$(GO) run ./test/servers down

.PHONY: test-core
test-core: ## Run the tests of the core module alone: they need nothing but Go, seconds
	$(GO) test ./... $(ARGS)

.PHONY: check
check: format vet lint arch pages ## Check format, vet, lint, the rules of internal/archtest, and links and tables of the documentation

.PHONY: format
format:
	@files=$$(gofmt -l .); test -z "$$files" || { echo "not formatted (make fmt):" $$files >&2; exit 1; }

.PHONY: vet
vet:
	$(GO) vet $(packages)
	GOOS=windows $(GO) vet ./...
	GOOS=darwin $(GO) vet ./...

.PHONY: lint
lint:
	$(GO) run $(golangci) run $(trees)

.PHONY: arch
arch:
	$(GO) test ./internal/archtest

# The pages lie outside of the module that checks them, so a cached result says nothing.
.PHONY: pages
pages: ## Check the documentation: links, tables, pipelines, what is made from code; seconds
	$(GO) test -count 1 ./test/docs -skip 'TestTutorial$$'
	$(GO) test -count 1 ./cmd/semel/internal/cli -run 'Reference|ExitCodePage'

.PHONY: bench
bench: ## Run the benchmarks and write docs/benchmarks.md (ARGS for flags of test/bench)
	$(GO) run ./test/bench $(ARGS)
	$(GO) test ./test/docs -run Measured -args -write

.PHONY: chaos
chaos: ## Kill and stop real processes at random and check the effects (ARGS for flags of go test)
	$(GO) test -count 1 -v -timeout 60m $(core)/test/chaos/... $(ARGS)

.PHONY: fmt
fmt: ## Format the code; write what is made from it: depguard rules from the import table, the reference from the commands
	gofmt -w .
	$(GO) test ./internal/archtest -run Depguard -write
	$(GO) test ./cmd/semel/internal/cli -run Reference -write
	$(GO) test ./test/docs -run 'Capabilities|Measured' -args -write

.PHONY: clean
clean: ## Remove what the targets above leave behind
	rm -rf bin dist .work
