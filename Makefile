# `make` without a target lists the targets.

.PHONY: help check test race soak mutate mutate-go model scale algorithms budgets pictures dashboard generate release container images cluster cluster-down bench bench-clients clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

check: ## run before each commit: formatting, go vet, and the tests that your changes can affect; about a minute
	@tools/check.sh

test: ## run every check and every test; on Debian or Ubuntu, install missing packages first
	@tools/test.sh

race: ## make test with the race detector for all packages, for the night
	@RATELIMIT_TEST_RACE=all tools/test.sh

soak: ## run the long tests: calls, combinations of features, and histories under faults, compared with the model, the proofs of deployments, and the gateway's memory, rules and quotas; RATELIMIT_SOAK=steps
	@RATELIMIT_SOAK=$${RATELIMIT_SOAK:-200000} go test -count=1 -timeout 30m -v -run 'TestAgreement|TestCorners|TestExact|TestRemainingAndRetry|TestShadowFields' ./lua_test
	@RATELIMIT_SOAK=$${RATELIMIT_SOAK:-200000} go test -count=1 -timeout 30m -v ./combinations
	@cd gateway && RATELIMIT_SOAK=1 go test -tags soak -count=1 -timeout 10m -v -run 'TestMemoryOfStreams|TestQuotasOfFleet|TestAllAtOnce|TestManyRules|TestFleet' . ./internal/rlqs
	@cd integration_test && RATELIMIT_SOAK=$${RATELIMIT_SOAK:-200000} go test -count=1 -timeout 60m -v -run 'TestAgreement$$|TestHistories$$|TestFleetProof' .

mutate: ## change the library's Lua in one place at a time, and list changes that no test detects; SAMPLE=200 tries that many
	@go run ./tools/mutate -sample $${SAMPLE:-0}

mutate-go: ## change the Go code in one place at a time, and list changes that no test detects; PACKAGE=client FILES="lease.go hold.go"
	@tools/mutate-go.sh

model: ## check the protocols of batches and of deployments with Spin (Debian: spin), and that Spin finds each faulty variant; five minutes
	@tools/batches/check.sh && tools/deployments/check.sh

scale: ## run the simulations for docs/scale.md, and update its tables and its plot; ten seconds
	@go run ./tools/scale -write docs

algorithms: ## send the same traffic through each algorithm, and update the table and the pictures of docs/algorithms.md
	@go run ./tools/algorithms -write docs

budgets: ## send estimates and settlements to a budget, and draw docs/budgets.svg
	@go run ./tools/budgets -write docs

pictures: ## draw the diagrams of the documents
	@go run ./tools/pictures -write docs

dashboard: ## take docs/dashboard.png: the dashboard of a cluster with five minutes of traffic
	@cd integration_test/browser && go test . -run TestCluster -count=1 -timeout 20m -args -picture ../../docs/dashboard.png

generate: ## build functions/ratelimit.lua from functions/src
	@go generate ./functions

release: ## build the binaries for linux, darwin and windows twice, and compare; writes them and SHA256SUMS to .build/release
	@tools/release.sh

container: ## build the container images ratelimit-functions/ratelimit and ratelimit-functions/ratelimit-gateway
	@docker/container.sh ratelimit
	@docker/container.sh ratelimit-gateway

images: ## pull or build the Docker images of Redis 7.0, Redis 8.0 and Valkey 8.1 that the tests use
	@docker/images.sh

cluster: ## start a Redis Cluster for experiments, on 127.0.0.1:7000 to 7005
	@docker/cluster.sh up

cluster-down: ## stop that cluster and delete its data
	@docker/cluster.sh down

bench: ## compare the server time of decisions with other limiters
	@cd bench && go run .

bench-clients: ## measure whole programs with this and other limiters, and update bench/README.md; three minutes
	@cd bench && go run . clients --write .

clean: ## remove the files that builds and tests left in this directory
	@rm -rf .build ratelimit
