package config

import (
	"strings"
	"testing"
)

func props(t *testing.T, text string) *Properties {
	t.Helper()
	p, err := ParseProperties("server.properties", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const lone = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=/a, /b
`

func TestLoad(t *testing.T) {
	p := props(t, lone)
	if _, _, err := p.Check(false); err != nil {
		t.Fatal(err)
	}
	s, err := Load(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.LogDirs) != 2 || s.MetadataDir != "/a" || len(s.Advertised) != 1 || s.InterBroker != "PLAINTEXT" || !s.OnlyVoter() {
		t.Fatalf("%+v", s)
	}
}

// Every refusal names the key, and the rule or what to do.
func TestRefusals(t *testing.T) {
	tests := []struct{ name, add, want string }{
		{"misspelt", "log.retension.ms=5", `server.properties:7: unknown configuration key "log.retension.ms"; did you mean "log.retention.ms"?`},
		{"removed", "zookeeper.connect=x", "Kafka 4 has no ZooKeeper"},
		{"type", "num.partitions=many", "server.properties:7: num.partitions=many: must be of type int"},
		{"range", "num.partitions=0", "num.partitions=0: must be at least 1"},
		{"int overflow", "num.partitions=99999999999", "out of range for type int"},
		{"one of", "compression.type=lzo", "must be one of uncompressed, zstd"},
		{"list", "log.cleanup.policy=shred", "must be a list of compact, delete"},
		{"wildcard", "advertised.listeners=PLAINTEXT://0.0.0.0:9092", "must not advertise the wildcard"},
		{"node ids", "broker.id=2", "contradicts node.id=1"},
		{"voters", "controller.quorum.voters=2@h:1", "does not hold node.id=1"},
		{"listener twice", "listeners=PLAINTEXT://a:1,PLAINTEXT://b:2,CONTROLLER://c:3", "has listener PLAINTEXT twice"},
		{"tls", "listeners=SSL://a:1,CONTROLLER://c:3\nsecurity.inter.broker.protocol=SSL", "only PLAINTEXT is served"},
		{"unmapped", "listeners=FOO://a:1,CONTROLLER://c:3", "no security protocol is known for listener FOO"},
		{"session", "group.min.session.timeout.ms=9000000", "must not be more than group.max.session.timeout.ms"},
		{"retention 0", "log.retention.ms=0", "must be -1"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			p := props(t, lone+tc.add+"\n")
			_, _, err := p.Check(false)
			if err == nil {
				_, err = Load(p)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want ...%s...", err, tc.want)
			}
		})
	}
}

func TestRelaxedUnknownKeysWarn(t *testing.T) {
	w, notes, err := props(t, lone+"foo.bar=1\nssl.protocol=TLSv1.2\n").Check(true)
	if err != nil || len(w) != 1 || !strings.Contains(w[0], "foo.bar") {
		t.Fatalf("%v %v", w, err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "ssl.protocol") {
		t.Errorf("a known key without effect is to be told: %v", notes)
	}
}

func TestSynonymsAndPrecedence(t *testing.T) {
	l := &Layers{Static: map[string]string{"log.retention.hours": "2", "log.roll.ms": "5"}}
	if got := l.Topic(nil).RetentionMs; got != 2*3600000 {
		t.Errorf("hours: %d", got)
	}
	l = l.With(nil, map[string]string{"log.retention.minutes": "3"})
	if got := l.Topic(nil).RetentionMs; got != 3*60000 {
		t.Errorf("a dynamic member hides the static family: %d", got)
	}
	if got := l.Topic(map[string]string{"retention.ms": "-1"}).RetentionMs; got != -1 {
		t.Errorf("own value: %d", got)
	}
	l = l.With(map[string]string{"log.retention.ms": "9"}, l.Cluster)
	if got := l.Topic(nil).RetentionMs; got != 9 {
		t.Errorf("per broker first: %d", got)
	}
	for _, e := range l.DescribeTopic(map[string]string{"retention.ms": "7"}, []string{"retention.ms"}) {
		if e.Source != SourceTopic || *e.Value != "7" || len(e.Synonyms) < 4 || e.Synonyms[1].Source != SourceDynamicBroker {
			t.Errorf("%+v", e)
		}
	}
	if got := *DefaultLog(); got != *(&Layers{}).Topic(nil) {
		t.Errorf("the key table's defaults differ from DefaultLog:\n%+v\n%+v", *(&Layers{}).Topic(nil), got)
	}
}

func TestEveryKeysDefaultIsValid(t *testing.T) {
	for _, list := range [][]Key{BrokerKeys(), TopicKeys(), GroupKeys(), ClientMetricsKeys()} {
		for i := range list {
			if k := &list[i]; k.HasDefault() {
				if err := k.Validate(k.Default); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for name := range acts {
		if name != "cluster.id" && BrokerKey(name) == nil && TopicKey(name) == nil {
			t.Errorf("acts names %q, which is no key", name)
		}
	}
}

func TestSensitiveValuesAreNotShown(t *testing.T) {
	l := &Layers{Static: map[string]string{"ssl.key.password": "secret", "custom.key": "x"}}
	for _, e := range l.DescribeBroker(nil) {
		if (e.Name == "ssl.key.password" || e.Name == "custom.key") && (e.Value != nil || !e.Sensitive) {
			t.Errorf("%s is shown", e.Name)
		}
	}
	k := BrokerKey("ssl.key.password")
	if strings.Contains(k.show("secret"), "secret") {
		t.Error("an error would show a password")
	}
}

func TestValidateTopic(t *testing.T) {
	for cfg, want := range map[string]string{
		"retention.mss=1": `did you mean "retention.ms"?`, "segment.bytes=5": "at least 1048576", "cleanup.policy=": "",
		"min.compaction.lag.ms=9;max.compaction.lag.ms=3": "must not be more than max.compaction.lag.ms", "remote.storage.enable=true": "tiered storage",
	} {
		m := map[string]string{}
		for _, kv := range strings.Split(cfg, ";") {
			k, v, _ := strings.Cut(kv, "=")
			m[k] = v
		}
		err := ValidateTopic(m)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", cfg, err, want)
		}
	}
}
