SHELL := /bin/bash

.DEFAULT_GOAL := help
.PHONY: help test test-clientgo test-chart test-kube screenshots image release sbom lint fmt tidy bench bench-check chaos ci nightly

help: ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

test: ## Run all tests except those of adapters/clientgo, on real servers; install those first where allowed. Budget: 6 minutes.
	@bash scripts/test.sh

test-clientgo: ## Run the tests of adapters/clientgo, and the programs of docs/MIGRATING.md. Builds client-go and controller-runtime.
	@. scripts/flags.sh && cd bench && GOWORK=off go test -vet=off -run Migrating .
	@bash scripts/test.sh clientgo

test-chart: ## Check the chart without a cluster.
	@bash scripts/chart-test.sh

test-kube: ## Test on the cluster of KUBECONFIG; KUBE_LOAD is the command that loads an image archive.
	@bash scripts/kube-test.sh

screenshots: ## Make the screenshots of the page of statusz in docs/ with Chromium.
	@cd test/browser && NOONLOCK_REQUIRE_SERVERS=1 NOONLOCK_SCREENSHOTS=../../docs go test -count=1 -run '^TestScreenshots$$' .

image: ## Build the image of an example or of noonctl (PROGRAM=lottery) as an OCI archive in dist/, without Docker.
	@bash scripts/image.sh $(PROGRAM)

release: ## Check whether this commit can be released as VERSION=v0.1.0, and prepare that in dist/. Publishes nothing.
	@bash scripts/release.sh $(VERSION)

sbom: image ## Write a bill of materials (CycloneDX) of the image's programs to dist/.
	@bash scripts/sbom.sh $(PROGRAM)

lint: ## Check formatting, golangci-lint, tidiness of every module, syntax of the scripts.
	@bash scripts/lint.sh

fmt: ## Format all Go code.
	@bash scripts/golangci-lint.sh fmt ./...

tidy: ## Run go mod tidy in all modules.
	@bash scripts/tidy.sh

bench: ## Compare with other libraries; writes the tables of docs/PERFORMANCE.md. Measures client-go's elector, too. Up to 40 minutes.
	@cd bench && GOWORK=off timeout 40m go test -run '^$$' -bench . -benchtime 1x -timeout 40m .
	@cd adapters/clientgo && go test -run '^$$' -bench . -benchtime 1x -timeout 10m .

bench-check: ## Measure beside other libraries, and print what is worse than in docs/PERFORMANCE.md by more than a tenth.
	@cd bench && GOWORK=off timeout 40m go test -run '^$$' -bench . -benchtime 1x -timeout 40m . -compare

chaos: ## Run workers under faults and judge what they did: 10 s on each topology, DURATION=20m on TOPOLOGY=cluster,one with SEED=1, or other libraries with PEERS=1.
	@cd test/chaos && GOWORK=off NOONLOCK_REQUIRE_SERVERS=1 TOPOLOGY=$(TOPOLOGY) SEED=$(SEED) DURATION=$(DURATION) \
		go test -count=1 -parallel 5 -timeout 24h $(if $(PEERS),-v -run TestPeers,$(if $(TOPOLOGY),-v -run TestChaos)) ./...

ci: ## Do what CI does: test, race, other topologies, mutants of changed scripts, lint, chart, images, Kubernetes. Budget: 20 minutes.
	@bash .ci/run

nightly: ## Do what CI does with all mutants, many more repetitions and long chaos. An hour or two.
	@NOONLOCK_NIGHTLY=1 MUTANTS=all DURATION=20m bash .ci/run
