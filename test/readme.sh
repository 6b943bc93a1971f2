#!/usr/bin/env bash
# Does what the README's first screen says, on ports of its own and in a directory of its own: starts a server, sends a
# record, reads it back, stops the server with SIGTERM.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
go build -o "$dir/runnel" ./cmd/runnel
port=$((20000 + RANDOM % 20000))
"$dir/runnel" server --set log.dirs="$dir/data" \
  --set listeners="PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))" 2>"$dir/log" &
pid=$!
trap 'kill $pid 2>/dev/null || true; rm -rf "$dir"' EXIT
for _ in $(seq 100); do grep -q 'msg=serving' "$dir/log" && break; kill -0 $pid; sleep 0.05; done
export RUNNEL_BOOTSTRAP_SERVER=127.0.0.1:$port
"$dir/runnel" topic create greetings --partitions 3
echo 'hello, world' | "$dir/runnel" produce greetings
"$dir/runnel" consume greetings -e | grep -q 'hello, world'
kill -TERM $pid
wait $pid
[ -e "$dir/data/.kafka_cleanshutdown" ]
echo "served, produced, consumed, stopped cleanly"
