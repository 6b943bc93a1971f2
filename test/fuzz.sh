#!/usr/bin/env bash
# Runs every fuzz target of the project for a while: test/fuzz.sh [TIME per target, default 30s].
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
for dir in $(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do
  for target in $(grep -ho '^func Fuzz[A-Za-z0-9_]*' "$dir"/*_test.go | cut -d' ' -f2 | sort -u); do
    echo "== $dir $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
  done
done
