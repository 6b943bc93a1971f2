package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"runnel/internal/kit/config"
	"runnel/internal/kit/vfs"
	"runnel/internal/node"
	"runnel/internal/store/logstore"
)

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

func TestMetricsOfALiveNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conf, err := config.Load(config.LoneNode("/d", "127.0.0.1:0", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(ctx, node.Options{Config: conf, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(ctx)
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Bootstrap()), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	h := Handler(n, false)
	code, text := get(t, h, "/metrics")
	if code != 200 {
		t.Fatal(code, text)
	}
	for _, want := range []string{
		"kafka_controller_kafkacontroller_activecontrollercount 1", "kafka_controller_kafkacontroller_offlinepartitionscount 0",
		"kafka_server_replicamanager_underreplicatedpartitions 0", "kafka_server_kafkaserver_brokerstate 3",
		`kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 3`, `kafka_log_log_logendoffset{partition="0",topic="t"} 3`,
		`kafka_network_requestmetrics_requests_total{listener="PLAINTEXT",request="Produce"} 3`, `kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if code, text := get(t, h, "/ready"); code != 200 || !strings.Contains(text, `"ready":true`) {
		t.Error(code, text)
	}
	if code, _ := get(t, h, "/healthz"); code != 200 {
		t.Error(code)
	}
	if code, _ := get(t, h, "/debug/pprof/"); code != 404 {
		t.Errorf("profiles are served without being asked for: %d", code)
	}
	if code, _ := get(t, Handler(n, true), "/debug/pprof/"); code != 200 {
		t.Errorf("profiles: %d", code)
	}
}

type fixed node.Status

func (f fixed) Status() node.Status { return node.Status(f) }

func TestReadySaysWhatIsMissing(t *testing.T) {
	for want, s := range map[string]node.Status{
		"fenced":                    {Fenced: true, BrokerState: 3},
		"state is 1":                {BrokerState: 1},
		"no leader of the metadata": {BrokerState: 3, QuorumLeader: -1},
	} {
		if code, text := get(t, Handler(fixed(s), false), "/ready"); code != 503 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", want, code, text)
		}
	}
	s := node.Status{BrokerState: 3, Dirs: []logstore.Dir{{Path: "/x", Err: errors.New("boom")}, {Path: "/y", Full: true}}}
	if code, text := get(t, Handler(fixed(s), false), "/ready"); code != 200 || !strings.Contains(text, "/x is offline: boom") || !strings.Contains(text, "/y is full") {
		t.Errorf("an offline and a full directory are named, and others served: %d %s", code, text)
	}
}
