package config

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// runnelKeys are ours; Kafka's tools see them as unknown keys.
var runnelKeys = []Key{
	{Name: "runnel.log.dir.min.free.bytes", Type: Long, Default: "67108864", Check: AtLeast(0), Area: "Runnel"},
	{Name: "runnel.request.memory.bytes", Type: Long, Default: "536870912", Check: AtLeast(1 << 20), Area: "Runnel"},
	{Name: "runnel.advertise.dialled.address", Type: Boolean, Default: "false", Area: "Runnel"},
	{Name: "runnel.http.listener", Type: String, Default: "", Area: "Runnel"},
	{Name: "runnel.http.pprof", Type: Boolean, Default: "false", Area: "Runnel"},
	{Name: "runnel.write.timeout.ms", Type: Long, Default: "60000", Check: AtLeast(1), Area: "Runnel"},
}

var tables = sync.OnceValue(func() (t struct{ broker, topic, group, metrics map[string]*Key }) {
	index := func(lists ...[]Key) map[string]*Key {
		m := map[string]*Key{}
		for _, l := range lists {
			for i := range l {
				m[l[i].Name] = &l[i]
			}
		}
		return m
	}
	t.broker = index(brokerKeys, dynamicOnlyKeys, authorizerKeys, runnelKeys)
	t.topic, t.group, t.metrics = index(topicKeys), index(groupKeys), index(clientMetricsKeys)
	return t
})

// dynamicOnlyKeys have no place in a file: they exist only as dynamic broker values.
var dynamicOnlyKeys = []Key{
	{Name: "leader.replication.throttled.rate", Type: Long, Default: "9223372036854775807", Check: AtLeast(0), Dynamic: ClusterWide, Area: "Quotas"},
	{Name: "follower.replication.throttled.rate", Type: Long, Default: "9223372036854775807", Check: AtLeast(0), Dynamic: ClusterWide, Area: "Quotas"},
	{Name: "replica.alter.log.dirs.io.max.bytes.per.second", Type: Long, Default: "9223372036854775807", Check: AtLeast(0), Dynamic: ClusterWide, Area: "Quotas"},
}

// authorizerKeys are read by Kafka's StandardAuthorizer, outside its own tables.
var authorizerKeys = []Key{
	{Name: "super.users", Type: String, Default: Null, Area: "Security"},
	{Name: "allow.everyone.if.no.acl.found", Type: Boolean, Default: "false", Area: "Security"},
}

// BrokerKey, TopicKey, GroupKey and ClientMetricsKey find a key by name, nil if unknown.
func BrokerKey(name string) *Key        { return tables().broker[name] }
func TopicKey(name string) *Key         { return tables().topic[name] }
func GroupKey(name string) *Key         { return tables().group[name] }
func ClientMetricsKey(name string) *Key { return tables().metrics[name] }

// BrokerKeys and the others give the tables in documentation order.
func BrokerKeys() []Key {
	return slices.Concat(brokerKeys, dynamicOnlyKeys, authorizerKeys, runnelKeys)
}
func TopicKeys() []Key         { return topicKeys }
func GroupKeys() []Key         { return groupKeys }
func ClientMetricsKeys() []Key { return clientMetricsKeys }

// removed keys were Kafka's before 4.0; what replaces them.
var removed = map[string]string{
	"zookeeper.connect":                       "Kafka 4 has no ZooKeeper; set process.roles and controller.quorum.voters",
	"inter.broker.protocol.version":           "the protocol follows metadata.version since 4.0; drop the key",
	"log.message.format.version":              "only record format 2 is written since 4.0; drop the key",
	"message.format.version":                  "only record format 2 is written since 4.0; drop the key",
	"log.message.downconversion.enable":       "records are not converted down since 4.0; drop the key",
	"message.downconversion.enable":           "records are not converted down since 4.0; drop the key",
	"log.message.timestamp.difference.max.ms": "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
	"message.timestamp.difference.max.ms":     "use message.timestamp.before.max.ms and message.timestamp.after.max.ms",
	"controlled.shutdown.max.retries":         "removed in 4.0; drop the key",
	"controlled.shutdown.retry.backoff.ms":    "removed in 4.0; drop the key",
	"reserved.broker.max.id":                  "removed in 4.0; drop the key",
	"broker.id.generation.enable":             "removed in 4.0; set node.id",
	"control.plane.listener.name":             "removed in 4.0; use controller.listener.names",
	"offsets.commit.required.acks":            "removed in 4.0; drop the key",
	"group.coordinator.new.enable":            "removed in 4.1; drop the key",
	"zookeeper.connection.timeout.ms":         "Kafka 4 has no ZooKeeper; drop the key",
	"zookeeper.session.timeout.ms":            "Kafka 4 has no ZooKeeper; drop the key",
	"zookeeper.set.acl":                       "Kafka 4 has no ZooKeeper; drop the key",
	"zookeeper.metadata.migration.enable":     "migration ended with 3.9; drop the key",
}

// prefixes under which any key is taken: they belong to plugins or to one listener.
var openPrefixes = []string{"listener.name.", "rsm.config.", "rlmm.config.", "config.providers.", "kafka.", "confluent.", "metrics.", "sasl.", "ssl."}

// UnknownBroker explains a broker key that is in no table, or gives nil for keys that
// belong to plugins or one listener.
func UnknownBroker(name string) error {
	if BrokerKey(name) != nil {
		return nil
	}
	if strings.HasPrefix(name, "listener.name.") {
		// listener.name.LISTENER.KEY or listener.name.LISTENER.MECHANISM.KEY
		rest := strings.SplitN(strings.TrimPrefix(name, "listener.name."), ".", 2)
		if len(rest) == 2 {
			inner := rest[1]
			if _, after, ok := strings.Cut(inner, "."); BrokerKey(inner) != nil || ok && BrokerKey(after) != nil {
				return nil
			}
			return &Error{Key: name, Nearest: withPrefix("listener.name."+rest[0]+".", nearest(inner, tables().broker))}
		}
	}
	for _, p := range openPrefixes {
		if strings.HasPrefix(name, p) && p != "sasl." && p != "ssl." && p != "metrics." && p != "listener.name." {
			return nil
		}
	}
	if why, ok := removed[name]; ok {
		return &Error{Key: name, Rule: why}
	}
	return &Error{Key: name, Nearest: nearest(name, tables().broker)}
}

// UnknownTopic explains a topic key that is in no table.
func UnknownTopic(name string) error {
	if TopicKey(name) != nil {
		return nil
	}
	if why, ok := removed[name]; ok {
		return &Error{Key: name, Rule: why}
	}
	return &Error{Key: name, Nearest: nearest(name, tables().topic)}
}

func withPrefix(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

// nearest finds the known name of the smallest edit distance, if it is near enough to be
// a misspelling.
func nearest(name string, known map[string]*Key) string {
	best, bestDist := "", max(3, len(name)/4)+1
	for k := range known {
		if d := distance(name, k, bestDist+1); d < bestDist || d == bestDist && best != "" && k < best {
			best, bestDist = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance, cut off at limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost = 1 + min(prev, row[j], row[j+1])
			}
			prev, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// ValidateTopic checks a topic's overrides as a set (LogConfig.validate): names, values
// and what they say together.
func ValidateTopic(overrides map[string]string) error {
	for _, name := range sortedNames(overrides) {
		k := TopicKey(name)
		if k == nil {
			return UnknownTopic(name)
		}
		if err := k.Validate(overrides[name]); err != nil {
			return err
		}
	}
	l := (&Layers{}).Topic(overrides)
	if l.MinCompactionLagMs > l.MaxCompactionLagMs {
		return &Error{Key: "min.compaction.lag.ms", Value: fmt.Sprint(l.MinCompactionLagMs),
			Rule: fmt.Sprintf("must not be more than max.compaction.lag.ms, which is %d", l.MaxCompactionLagMs)}
	}
	if strings.EqualFold(overrides["remote.storage.enable"], "true") {
		return &Error{Key: "remote.storage.enable", Value: "true", Rule: "tiered storage is disabled on this cluster (remote.log.storage.system.enable)"}
	}
	return nil
}

// ValidateGroup and ValidateClientMetrics check stored group and subscription configs.
func ValidateGroup(overrides map[string]string) error {
	return validateIn(tables().group, overrides)
}
func ValidateClientMetrics(overrides map[string]string) error {
	return validateIn(tables().metrics, overrides)
}

func validateIn(table map[string]*Key, values map[string]string) error {
	for _, name := range sortedNames(values) {
		k := table[name]
		if k == nil {
			return &Error{Key: name, Nearest: nearest(name, table)}
		}
		if err := k.Validate(values[name]); err != nil {
			return err
		}
	}
	return nil
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
