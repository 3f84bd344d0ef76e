SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help test chaos lint fmt tidy bench ci

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

test: ## Run all tests of every module under -race, on real servers; install those first where allowed.
	@bash scripts/test.sh

chaos: ## Run the long chaos: 8 replicas of the lottery, 300 noons, real servers.
	@cd examples/lottery && NOONLOCK_CHAOS_REPLICAS=8 NOONLOCK_CHAOS_NOONS=300 \
		go test -race -count=1 -timeout 30m -run '^TestChaos$$' -v ./chaos

lint: ## Check formatting, vet, golangci-lint, tidiness of every module, syntax of the scripts.
	@bash scripts/lint.sh

fmt: ## Format all Go code.
	@bash scripts/golangci-lint.sh fmt ./...

tidy: ## Run go mod tidy in every module.
	@go list -m -f '{{.Dir}}' | while read -r module; do (cd "$$module" && go mod tidy) || exit 1; done

bench: ## Compare with raw commands on a real redis-server; raw samples go to bench/results.
	@go test -run '^$$' -bench . -benchtime 1x -timeout 30m ./bench/

ci: ## Do what CI does: test with all servers required, then lint.
	@bash .ci/run
