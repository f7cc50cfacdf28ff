# `make` alone lists what there is to run.

.PHONY: help check test soak mutate mutate-go model scale algorithms budgets generate release container images cluster cluster-down bench bench-clients clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

check: ## before each commit: formats, vet, and the tests that your changes can affect; a minute or so
	@tools/check.sh

test: ## every check and every test; installs what is missing on Debian or Ubuntu
	@tools/test.sh

soak: ## the long runs: generated calls against the model, offline and on every server; RATELIMIT_SOAK=steps
	@RATELIMIT_SOAK=$${RATELIMIT_SOAK:-200000} go test -count=1 -timeout 30m -v -run 'TestAgreement|TestExactness' ./lua_test
	@cd integration_test && RATELIMIT_SOAK=$${RATELIMIT_SOAK:-200000} go test -count=1 -timeout 60m -v -run 'TestAgreement$$' .

mutate: ## change the library's Lua in one place at a time, and see whether its tests notice; SAMPLE=200 tries that many
	@go run ./tools/mutate -sample $${SAMPLE:-0}

mutate-go: ## change the Go code in one place at a time, and see whether its tests notice; PACKAGE=client FILES="lease.go hold.go"
	@tools/mutate-go.sh

model: ## search every state of the batches' protocol with Spin (Debian: spin), and see each way to break it found; two minutes
	@tools/batches/check.sh

scale: ## simulate what docs/scale.md plans with, and put the tables and the plot into it; ten seconds
	@go run ./tools/scale -write docs

algorithms: ## send the same traffic through each algorithm, and put the table and the pictures into docs/algorithms.md
	@go run ./tools/algorithms -write docs

budgets: ## send estimates and settlements to a budget, and draw docs/budgets.svg
	@go run ./tools/budgets -write docs

generate: ## build functions/ratelimit.lua from functions/src
	@go generate ./functions

release: ## build the binaries for linux, darwin and windows, twice, and compare; they are in .build/release with SHA256SUMS
	@tools/release.sh

container: ## make the container images ratelimit-functions/ratelimit and ratelimit-functions/ratelimit-gateway
	@docker/container.sh ratelimit
	@docker/container.sh ratelimit-gateway

images: ## make the Docker images of Redis 7.0, Redis 8.0 and Valkey 8.1 that the tests use
	@docker/images.sh

cluster: ## start a Redis Cluster to play with, on 127.0.0.1:7000 to 7005
	@docker/cluster.sh up

cluster-down: ## stop that cluster and forget its data
	@docker/cluster.sh down

bench: ## measure side by side with other limiters
	@cd bench && go run .

bench-clients: ## measure what programs get of other limiters and of ours, and put it into bench/README.md; three minutes
	@cd bench && go run . clients --write .

clean: ## remove what the build and the tests left in this folder
	@rm -rf .build ratelimit
