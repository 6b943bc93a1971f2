# Everything here works on a fresh clone; the heavier suites fetch what they need.
GO ?= go

.PHONY: build test race fuzz compare interop chaos bench docs cross

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/runnel ./cmd/runnel

test:
	$(GO) test ./...

race:
	$(GO) test -race ./...

# FUZZTIME is for each target.
FUZZTIME ?= 30s
fuzz:
	./test/fuzz.sh $(FUZZTIME)

# The same requests to Apache Kafka 4.4 and to Runnel. Needs Java 17 and Maven.
compare:
	$(GO) test -tags compare -count=1 -timeout 20m ./test/compare/...

# Real clients: Kafka's own tools and Java client, librdkafka, kafka-python, aiokafka, kafkajs, @platformatic/kafka.
interop:
	$(GO) test -tags interop -count=1 -timeout 30m ./test/interop/...

# kill -9 under load; ROUNDS sets how many.
ROUNDS ?= 100
chaos:
	RUNNEL_CHAOS_ROUNDS=$(ROUNDS) $(GO) test -tags chaos -count=1 -timeout 60m ./test/chaos/...

bench:
	$(GO) run ./bench

docs:
	$(GO) test ./internal/ops/pages -update

cross:
	for os in linux darwin windows; do for arch in amd64 arm64; do \
	  echo "$$os/$$arch"; CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -o /dev/null ./cmd/runnel || exit 1; done; done
