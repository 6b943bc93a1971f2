package compare

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What is asked of brokers and of the controller about the cluster, its topics and their configuration.
func init() {
	sweep("api-versions", 0, 5, apiVersionsVersion)
	sweep("metadata", 0, 13, metadataVersion)
	sweep("describe-cluster", 0, 2, describeClusterVersion)
	sweep("describe-topic-partitions", 0, 0, describeTopicPartitionsVersion)
	sweep("create-topics", 2, 7, createTopicsVersion)
	sweep("delete-topics", 1, 6, deleteTopicsVersion)
	sweep("create-partitions", 0, 3, createPartitionsVersion)
	sweep("describe-configs", 1, 4, describeConfigsVersion)
	sweep("alter-configs", 0, 2, alterConfigsVersion)
	sweep("incremental-alter-configs", 0, 1, incrementalVersion)
	sweep("list-config-resources", 0, 1, listConfigResourcesVersion)
	sweep("describe-log-dirs", 1, 5, describeLogDirsVersion)
	sweep("alter-replica-log-dirs", 1, 2, alterReplicaLogDirsVersion)
	sweep("elect-leaders", 0, 2, electLeadersVersion)
	sweep("reassign", 0, 1, reassignVersion)
	sweep("update-features", 0, 2, updateFeaturesVersion)
	sweep("describe-quorum", 0, 2, describeQuorumVersion)
	sweep("unregister-broker", 0, 0, func(s *script, v int16) {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = 77
		s.ask("no such broker", v, r)
	})
	add("topic-names", topicNames)
	add("topic-configs", topicConfigs)
	add("config-values", configValues)
	add("auto-creation", autoCreation)
	add("frames", frames)
	add("unserved-versions", unservedVersions)
}

func apiVersionsVersion(s *script, v int16) {
	s.ask("hello", v, versions("compare", "1.0"))
	for _, bad := range [][2]string{{"", ""}, {"-x", "1"}, {"x", "1 2"}, {"x", ""}, {"x.y-z", "1.2-rc"}} {
		s.ask(fmt.Sprintf("as %q %q", bad[0], bad[1]), v, versions(bad[0], bad[1]))
	}
	if v == 5 {
		r := versions("compare", "1")
		r.NodeID = 1
		s.ask("node without cluster", v, r)
		r.ClusterID = str("another-cluster")
		s.ask("another cluster", v, r)
		r.NodeID = -1
		s.ask("another cluster, no node", v, r)
	}
	if v == 0 {
		for _, v := range []int16{6, 50, 1<<15 - 1} {
			s.ask(fmt.Sprint("version ", v), v, versions("compare", "1.0"))
		}
		s.ask("and it goes on", 0, versions("", ""))
	}
}

func metadataVersion(s *script, v int16) {
	t, u := s.topic("t", 1), s.topic("u", 4)
	all := metadata()
	if v > 0 {
		all.Topics = nil
	}
	s.ask("all", v, all)
	s.ask("two", v, metadata(u, t))
	if v >= 4 {
		r := metadata(s.own("nowhere"), t)
		r.AllowAutoTopicCreation = false
		s.ask("one missing", v, r)
		r = metadata("bad name!", "..", "")
		r.AllowAutoTopicCreation = false
		s.ask("names that cannot be", v, r)
	}
	s.ask("none", v, metadata())
	s.ask("one twice", v, metadata(t, t))
	if v >= 8 {
		r := metadata(t)
		r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = true, true
		s.ask("with operations", v, r)
	}
	if v >= 10 {
		byID := kmsg.NewPtrMetadataRequest()
		x := kmsg.NewMetadataRequestTopic()
		x.TopicID = s.ids[t]
		byID.Topics = append(byID.Topics, x)
		s.ask("by id", v, byID)
		byID.Topics[0].TopicID = [16]byte{3, 1, 4}
		s.ask("by no topic's id", v, byID)
		byID.Topics[0].TopicID = [16]byte{}
		s.ask("by no id", v, byID)
		byID.Topics[0].TopicID, byID.Topics[0].Topic = s.ids[t], str(u)
		s.ask("id and name", v, byID)
		if v >= 12 {
			x.TopicID = s.ids[u]
			mixed := metadata(t)
			mixed.Topics = append(mixed.Topics, x)
			s.ask("one by name, one by id", v, mixed)
		}
	}
}

func describeClusterVersion(s *script, v int16) {
	for _, endpoint := range []int8{1, 2, 7} {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.EndpointType = endpoint
		s.ask(fmt.Sprint("endpoints of type ", endpoint), v, r)
		r.IncludeClusterAuthorizedOperations, r.IncludeFencedBrokers = true, true
		s.ask(fmt.Sprint("endpoints of type ", endpoint, " with all"), v, r)
	}
}

func describeTopicPartitionsVersion(s *script, v int16) {
	t, u := s.topic("t", 6), s.topic("u", 2)
	ask := func(label string, limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) {
		r := kmsg.NewPtrDescribeTopicPartitionsRequest()
		r.ResponsePartitionLimit, r.Cursor = limit, cursor
		for _, n := range names {
			x := kmsg.NewDescribeTopicPartitionsRequestTopic()
			x.Topic = n
			r.Topics = append(r.Topics, x)
		}
		s.ask(label, v, r)
	}
	at := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		c := kmsg.NewDescribeTopicPartitionsRequestCursor()
		c.Topic, c.Partition = topic, partition
		return &c
	}
	ask("both", 2000, nil, u, t)
	ask("four partitions", 4, nil, t, u)
	ask("the next four", 4, at(t, 4), t, u)
	ask("ends with a topic", 6, nil, t, u)
	ask("missing", 100, nil, s.own("nowhere"), u)
	ask("bad name", 100, nil, "bad name!")
	ask("limit 0", 0, nil, t)
	ask("limit -1", -1, nil, t)
	ask("cursor behind the last partition", 100, at(t, 9), t, u)
	ask("negative cursor", 100, at(t, -1), t)
	ask("cursor at no topic", 100, at(s.own("s"), 0), t, u)
	ask("twice", 100, nil, u, u)
	ask("internal", 1, nil, "__consumer_offsets")
}

func createTopicsVersion(s *script, v int16) {
	check := func(label string, ts ...kmsg.CreateTopicsRequestTopic) {
		r := createTopics(ts...)
		r.ValidateOnly = true
		s.ask(label, v, r)
	}
	n := s.own("made")
	check("check only", createTopic(n, 2, 1, "retention.ms=60000", "cleanup.policy=compact"))
	s.ask("make", v, createTopics(createTopic(n, 2, 1, "retention.ms=60000"), createTopic(s.own("other"), 1, 1)))
	s.ask("make again, beside a new one", v, createTopics(createTopic(n, 2, 1), createTopic(s.own("third"), 1, 1)))
	s.settle(n, 2)
	for _, c := range []struct {
		label      string
		partitions int32
		replicas   int16
	}{
		{"defaults", -1, -1}, {"no partitions", 0, 1}, {"-2 partitions", -2, 1}, {"no replicas", 1, 0}, {"-2 replicas", 1, -2},
		{"too many replicas", 1, 4}, {"default partitions", -1, 1}, {"too many partitions", 10001, 1},
	} {
		check(c.label, createTopic(s.own("x"), c.partitions, c.replicas))
	}
	assigned := func(partitions int32, replicas int16, parts ...[]int32) kmsg.CreateTopicsRequestTopic {
		t := createTopic(s.own("x"), partitions, replicas)
		for i, rs := range parts {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), rs
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		return t
	}
	check("assigned", assigned(-1, -1, []int32{1}, []int32{1}))
	check("assigned to nobody", assigned(-1, -1, []int32{7}))
	check("assigned twice to one", assigned(-1, -1, []int32{1, 1}))
	check("assigned to none", assigned(-1, -1, []int32{}))
	check("assigned and counted", assigned(2, 1, []int32{1}, []int32{1}))
	hole := assigned(-1, -1, []int32{1}, []int32{1})
	hole.ReplicaAssignment[1].Partition = 5
	check("assigned with a hole", hole)
	uneven := assigned(-1, -1, []int32{1}, []int32{})
	check("assigned unevenly", uneven)
	check("same name twice", createTopic(s.own("x"), 1, 1), createTopic(s.own("x"), 1, 1), createTopic(s.own("y"), 1, 1))
	check("unknown config", createTopic(s.own("x"), 1, 1, "retention.min=4"))
	check("bad value", createTopic(s.own("x"), 1, 1, "retention.ms=soon"))
	check("out of range", createTopic(s.own("x"), 1, 1, "max.message.bytes=-4"))
	check("contradiction", createTopic(s.own("x"), 1, 1, "min.compaction.lag.ms=10", "max.compaction.lag.ms=5"))
	check("null value", createTopic(s.own("x"), 1, 1, "retention.ms"))
	check("config twice", createTopic(s.own("x"), 1, 1, "retention.ms=5", "retention.ms=6"))
	check("bad name", createTopic("bad name!", 1, 1), createTopic(s.own("y"), 1, 1))
	check("internal", createTopic("__consumer_offsets", 1, 1))
	s.ask("nothing", v, createTopics())
	s.ask("look", 12, metadata(n))
}

func deleteTopicsVersion(s *script, v int16) {
	a, b, c := s.topic("a", 2), s.topic("b", 1), s.topic("c", 1)
	s.ask("one", v, deleteTopics(a))
	s.until("gone", 12, quietly(metadata(a)), func(r kmsg.Response) bool { return r.(*kmsg.MetadataResponse).Topics[0].ErrorCode == 3 })
	s.ask("again", v, deleteTopics(a))
	s.ask("there and not", v, deleteTopics(b, s.own("nowhere"), "bad name!", ""))
	s.ask("none", v, deleteTopics())
	s.ask("twice in one", v, deleteTopics(s.own("x"), s.own("x")))
	if v >= 6 {
		byID := deleteTopics()
		x := kmsg.NewDeleteTopicsRequestTopic()
		x.TopicID = s.ids[c]
		both := x
		both.Topic = str(c)
		byID.Topics = append(byID.Topics, both)
		s.ask("id and name", v, byID)
		byID.Topics[0] = x
		s.ask("by id", v, byID)
		byID.Topics[0].TopicID = [16]byte{4, 4}
		s.ask("by no topic's id", v, byID)
		byID.Topics[0].TopicID = [16]byte{}
		s.ask("by no id", v, byID)
	}
	s.ask("one made again", 7, createTopics(createTopic(a, 1, 1)))
	s.settle(a, 1)
	s.ask("it is empty", 7, listOffsets(a, 0, -1))
}

func quietly(r *kmsg.MetadataRequest) *kmsg.MetadataRequest {
	r.AllowAutoTopicCreation = false
	return r
}

func createPartitionsVersion(s *script, v int16) {
	t := s.topic("t", 2)
	check := func(label string, r *kmsg.CreatePartitionsRequest) {
		r.ValidateOnly = true
		s.ask(label, v, r)
	}
	check("check only", createPartitions(t, 3))
	for _, n := range []int32{2, 1, 0, -1} {
		check(fmt.Sprint("to ", n), createPartitions(t, n))
	}
	check("no such topic", createPartitions(s.own("nowhere"), 3))
	check("bad name", createPartitions("bad name!", 3))
	check("assigned", createPartitions(t, 4, []int32{1}, []int32{1}))
	check("too few assigned", createPartitions(t, 4, []int32{1}))
	check("assigned to nobody", createPartitions(t, 3, []int32{9}))
	check("assigned more replicas", createPartitions(t, 3, []int32{1, 2}))
	check("assigned none", createPartitions(t, 3, []int32{}))
	check("twice", addPartitions(createPartitions(t, 3), t, 4))
	check("good and bad", addPartitions(createPartitions(t, 3), s.own("nowhere"), 4))
	check("very many", createPartitions(t, 10002))
	r := createPartitions(t, 3)
	r.Topics = nil
	check("nothing", r)
	s.ask("to 4", v, createPartitions(t, 4))
	s.settle(t, 4)
	s.ask("look", 12, metadata(t))
}

const (
	onTopic  = kmsg.ConfigResourceTypeTopic
	onBroker = kmsg.ConfigResourceTypeBroker
)

func describeConfigsVersion(s *script, v int16) {
	t := s.topic("t", 1, "retention.ms=60000", "cleanup.policy=compact")
	s.ask("a topic", v, describeConfigs(onTopic, t))
	s.ask("some keys", v, describeConfigs(onTopic, t, "retention.ms", "nosuch", "segment.bytes", "retention.ms"))
	s.ask("no key", v, describeConfigs(onTopic, t, []string{}...))
	synonyms := describeConfigs(onTopic, t, "retention.ms", "segment.bytes", "cleanup.policy", "compression.type", "min.insync.replicas", "flush.ms")
	synonyms.IncludeSynonyms, synonyms.IncludeDocumentation = true, true
	s.ask("with synonyms", v, synonyms)
	s.ask("no such topic", v, describeConfigs(onTopic, s.own("nowhere"), "retention.ms"))
	s.ask("bad name", v, describeConfigs(onTopic, "bad name!", "retention.ms"))
	s.ask("no name", v, describeConfigs(onTopic, "", "retention.ms"))
	keys := []string{"log.retention.hours", "log.retention.ms", "num.partitions", "log.dirs", "message.max.bytes", "log.cleaner.threads", "compression.type", "group.initial.rebalance.delay.ms", "node.id", "listeners", "ssl.keystore.password", "log.segment.bytes", "auto.create.topics.enable"}
	s.ask("the broker", v, describeConfigs(onBroker, "1", keys...))
	synonyms = describeConfigs(onBroker, "1", keys...)
	synonyms.IncludeSynonyms = true
	s.ask("the broker with synonyms", v, synonyms)
	for _, name := range []string{"", "01", "7", "one"} {
		s.ask("broker "+name, v, describeConfigs(onBroker, name, "log.retention.hours", "min.insync.replicas"))
	}
	s.ask("a logger", v, describeConfigs(kmsg.ConfigResourceTypeBrokerLogger, "1", "no.such.logger"))
	s.ask("another broker's logger", v, describeConfigs(kmsg.ConfigResourceTypeBrokerLogger, "7"))
	s.ask("no such type", v, describeConfigs(kmsg.ConfigResourceType(99), "x"))
	two := describeConfigs(onTopic, t, "retention.ms")
	two.Resources = append(two.Resources, describeConfigs(onTopic, s.own("nowhere")).Resources...)
	two.Resources = append(two.Resources, describeConfigs(onBroker, "1", "num.partitions").Resources...)
	s.ask("three resources", v, two)
	s.ask("a group", v, describeConfigs(kmsg.ConfigResourceType(32), s.own("g"), "consumer.session.timeout.ms"))
	s.ask("client metrics", v, describeConfigs(kmsg.ConfigResourceType(16), s.own("m")))
}

// shown waits until a topic's key has a value, and keeps the answer.
func (s *script) shown(t, key, v string) {
	s.until(key+" is "+v, 4, describeConfigs(onTopic, t, key), func(r kmsg.Response) bool {
		c := r.(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0]
		return c.Value != nil && *c.Value == v
	})
}

func alterConfigsVersion(s *script, v int16) {
	t := s.topic("t", 1, "flush.ms=777")
	s.ask("set two", v, alterOld(onTopic, t, "retention.ms=1000", "segment.bytes=2097152"))
	s.shown(t, "retention.ms", "1000")
	s.shown(t, "flush.ms", "9223372036854775807")
	s.ask("nothing, which unsets", v, alterOld(onTopic, t))
	s.shown(t, "retention.ms", "604800000")
	check := alterOld(onTopic, t, "retention.ms=1")
	check.ValidateOnly = true
	s.ask("check only", v, check)
	s.ask("bad value", v, alterOld(onTopic, t, "retention.ms=soon"))
	s.ask("bad key", v, alterOld(onTopic, t, "retention.min=1"))
	s.ask("null value", v, alterOld(onTopic, t, "retention.ms"))
	s.ask("no such topic", v, alterOld(onTopic, s.own("nowhere"), "retention.ms=1"))
	s.ask("bad name", v, alterOld(onTopic, "bad name!", "retention.ms=1"))
	s.ask("another broker", v, alterOld(onBroker, "7", "log.cleaner.threads=2"))
	s.ask("a broker that is no number", v, alterOld(onBroker, "one", "log.cleaner.threads=2"))
	s.ask("read-only", v, alterOld(onBroker, "1", "node.id=4"))
	s.ask("no such type", v, alterOld(kmsg.ConfigResourceType(99), "x", "a=b"))
	twice := alterOld(onTopic, t, "retention.ms=1")
	twice.Resources = append(twice.Resources, twice.Resources[0])
	s.ask("one resource twice", v, twice)
	two := alterOld(onTopic, t, "retention.ms=5")
	two.Resources = append(two.Resources, alterOld(onTopic, s.own("nowhere"), "retention.ms=1").Resources...)
	s.ask("good and bad", v, two)
	none := alterOld(onTopic, t)
	none.Resources = nil
	s.ask("none", v, none)
}

func incrementalVersion(s *script, v int16) {
	t := s.topic("t", 1)
	s.ask("set", v, alter(onTopic, t, "=retention.ms=1000", "=cleanup.policy=compact"))
	s.shown(t, "retention.ms", "1000")
	s.ask("append", v, alter(onTopic, t, "+cleanup.policy=delete"))
	s.shown(t, "cleanup.policy", "compact,delete")
	s.ask("append what is there", v, alter(onTopic, t, "+cleanup.policy=delete"))
	s.ask("subtract", v, alter(onTopic, t, "~cleanup.policy=compact"))
	s.shown(t, "cleanup.policy", "delete")
	s.ask("subtract what is not there", v, alter(onTopic, t, "~cleanup.policy=compact"))
	s.ask("delete", v, alter(onTopic, t, "-retention.ms", "-cleanup.policy"))
	s.shown(t, "retention.ms", "604800000")
	s.ask("delete what is not set", v, alter(onTopic, t, "-retention.ms"))
	check := alter(onTopic, t, "=retention.ms=1")
	check.ValidateOnly = true
	s.ask("check only", v, check)
	s.ask("bad value", v, alter(onTopic, t, "=retention.ms=soon"))
	s.ask("bad key", v, alter(onTopic, t, "=retention.min=1"))
	s.ask("delete a bad key", v, alter(onTopic, t, "-retention.min"))
	s.ask("set null", v, alter(onTopic, t, "=retention.ms"))
	s.ask("append to no list", v, alter(onTopic, t, "+retention.ms=1"))
	s.ask("subtract from no list", v, alter(onTopic, t, "~retention.ms=1"))
	s.ask("a key twice", v, alter(onTopic, t, "=retention.ms=1", "=retention.ms=2"))
	s.ask("no operation", v, alter(onTopic, t))
	s.ask("contradiction", v, alter(onTopic, t, "=min.compaction.lag.ms=10", "=max.compaction.lag.ms=5"))
	s.ask("no such topic", v, alter(onTopic, s.own("nowhere"), "=retention.ms=1"))
	s.ask("bad name", v, alter(onTopic, "bad name!", "=retention.ms=1"))
	s.ask("no name", v, alter(onTopic, "", "=retention.ms=1"))
	s.ask("internal topic", v, alter(onTopic, "__consumer_offsets", "=cleanup.policy=compact"))
	s.ask("read-only", v, alter(onBroker, "1", "=node.id=4"))
	s.ask("another broker", v, alter(onBroker, "7", "=log.cleaner.threads=2"))
	s.ask("a broker that is no number", v, alter(onBroker, "one", "=log.cleaner.threads=2"))
	s.ask("no such type", v, alter(kmsg.ConfigResourceType(99), "x", "=a=b"))
	twice := alter(onTopic, t, "=retention.ms=1")
	twice.Resources = append(twice.Resources, twice.Resources[0])
	s.ask("one resource twice", v, twice)
	two := alter(onTopic, t, "=retention.ms=5")
	two.Resources = append(two.Resources, alter(onTopic, s.own("nowhere"), "=retention.ms=1").Resources...)
	s.ask("good and bad", v, two)
	s.shown(t, "retention.ms", "5")
	// What all brokers share is set to what it is, so that scenes beside this one see no change.
	key := []string{"background.threads=10", "num.io.threads=8"}[v]
	name, _, _ := strings.Cut(key, "=")
	s.ask("the broker", v, alter(onBroker, "1", "="+key))
	s.until("is set", 4, describeConfigs(onBroker, "1", name), func(r kmsg.Response) bool {
		return r.(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0].Source == kmsg.ConfigSourceDynamicBrokerConfig
	})
	s.ask("the broker, unset", v, alter(onBroker, "1", "-"+name))
	s.ask("the broker, bad value", v, alter(onBroker, "1", "=background.threads=many"))
	s.ask("the broker, per-broker key for all", v, alter(onBroker, "", "=listeners=PLAINTEXT://:1"))
}

func listConfigResourcesVersion(s *script, v int16) {
	s.topic("t", 1, "flush.ms=5")
	r := kmsg.NewPtrListConfigResourcesRequest()
	s.ask("all", v, r)
	for _, kind := range []int8{2, 4, 8, 16, 32, 99, 0} {
		r.ResourceTypes = []int8{kind}
		s.ask(fmt.Sprint("type ", kind), v, r)
	}
}

func describeLogDirsVersion(s *script, v int16) {
	t := s.topic("t", 2)
	s.put(t, 0, recs(3))
	ask := func(label string, topic string, partitions ...int32) {
		r := kmsg.NewPtrDescribeLogDirsRequest()
		x := kmsg.NewDescribeLogDirsRequestTopic()
		x.Topic, x.Partitions = topic, partitions
		r.Topics = append(r.Topics, x)
		s.ask(label, v, r)
	}
	ask("one", t, 0)
	ask("both", t, 0, 1)
	ask("no such partition", t, 8)
	ask("no such topic", s.own("nowhere"), 0)
	all := kmsg.NewPtrDescribeLogDirsRequest()
	all.Topics = nil
	s.ask("all", v, all)
	all.Topics = []kmsg.DescribeLogDirsRequestTopic{}
	s.ask("none", v, all)
}

func alterReplicaLogDirsVersion(s *script, v int16) {
	t := s.topic("t", 1)
	ask := func(label, dir, topic string, partitions ...int32) {
		r := kmsg.NewPtrAlterReplicaLogDirsRequest()
		d := kmsg.NewAlterReplicaLogDirsRequestDir()
		d.Dir = dir
		x := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
		x.Topic, x.Partitions = topic, partitions
		d.Topics = append(d.Topics, x)
		r.Dirs = append(r.Dirs, d)
		s.ask(label, v, r)
	}
	ask("no such directory", "/no/such/dir", t, 0)
	ask("a relative directory", "data", t, 0)
	ask("no such partition", "/no/such/dir", t, 4)
	ask("no such topic", "/no/such/dir", s.own("nowhere"), 0)
}

func electLeadersVersion(s *script, v int16) {
	t := s.topic("t", 2)
	s.ask("preferred", v, electLeaders(0, t, 0, 1))
	s.ask("no such partition", v, electLeaders(0, t, 0, 9))
	s.ask("no such topic", v, electLeaders(0, s.own("nowhere"), 0))
	if v >= 1 {
		s.ask("unclean", v, electLeaders(1, t, 0))
		s.ask("no such kind", v, electLeaders(7, t, 0))
	}
	r := electLeaders(0, t)
	r.Topics = nil
	s.ask("all", v, r)
	r.Topics = []kmsg.ElectLeadersRequestTopic{}
	s.ask("none", v, r)
}

func reassignVersion(s *script, v int16) {
	t := s.topic("t", 2)
	s.ask("to where it is", v, reassign(t, 0, []int32{1}))
	s.ask("to nobody", v, reassign(t, 0, []int32{9}))
	s.ask("twice to one", v, reassign(t, 0, []int32{1, 1}))
	s.ask("to none", v, reassign(t, 0, []int32{}))
	s.ask("a negative one", v, reassign(t, 0, []int32{-1}))
	s.ask("cancel nothing", v, reassign(t, 0, nil))
	s.ask("no such partition", v, reassign(t, 9, []int32{1}))
	s.ask("no such topic", v, reassign(s.own("nowhere"), 0, []int32{1}))
	if v >= 1 {
		r := reassign(t, 0, []int32{1})
		r.AllowReplicationFactorChange = false
		s.ask("same factor", v, r)
		r.Topics[0].Partitions[0].Replicas = []int32{1, 2}
		s.ask("another factor", v, r)
	}
	if v == 0 {
		list := kmsg.NewPtrListPartitionReassignmentsRequest()
		list.TimeoutMillis = 5000
		list.Topics = nil
		s.ask("list all", 0, list)
		x := kmsg.NewListPartitionReassignmentsRequestTopic()
		x.Topic, x.Partitions = t, []int32{0, 1}
		list.Topics = append(list.Topics, x)
		s.ask("list one", 0, list)
		list.Topics[0].Topic = s.own("nowhere")
		s.ask("list no topic", 0, list)
		list.Topics[0].Topic, list.Topics[0].Partitions = t, []int32{9}
		s.ask("list no partition", 0, list)
	}
}

func updateFeaturesVersion(s *script, v int16) {
	for _, c := range []struct {
		feature string
		level   int16
		kind    int8
	}{
		{"no.such.feature", 1, 1}, {"metadata.version", 99, 1}, {"metadata.version", 1, 1}, {"metadata.version", 0, 2},
		{"group.version", 1, 1}, {"group.version", 0, 1}, {"group.version", 0, 2}, {"transaction.version", 2, 1},
		{"transaction.version", 0, 3}, {"kraft.version", 1, 1}, {"share.version", 1, 7}, {"group.version", -1, 1},
	} {
		if v == 0 {
			continue // v0 cannot check only, and a change would be everybody's
		}
		s.ask(fmt.Sprint(c.feature, " ", c.level, " kind ", c.kind), v, updateFeature(c.feature, c.level, c.kind))
	}
	if v == 0 {
		s.ask("no such feature", v, updateFeature("no.such.feature", 1, 1))
	}
	twice := updateFeature("group.version", 1, 1)
	twice.FeatureUpdates = append(twice.FeatureUpdates, updateFeature("no.such.feature", 1, 1).FeatureUpdates...)
	s.ask("good and bad", v, twice)
	twice.FeatureUpdates = nil
	s.ask("none", v, twice)
}

func describeQuorumVersion(s *script, v int16) {
	ask := func(label, topic string, partition int32) {
		r := kmsg.NewPtrDescribeQuorumRequest()
		t := kmsg.NewDescribeQuorumRequestTopic()
		t.Topic = topic
		p := kmsg.NewDescribeQuorumRequestTopicPartition()
		p.Partition = partition
		t.Partitions = append(t.Partitions, p)
		r.Topics = append(r.Topics, t)
		s.ask(label, v, r)
	}
	ask("the metadata log", "__cluster_metadata", 0)
	ask("another partition", "__cluster_metadata", 1)
	ask("another topic", s.own("t"), 0)
	s.ask("nothing", v, kmsg.NewPtrDescribeQuorumRequest())
}

func topicNames(s *script) {
	for _, n := range []string{"", ".", "..", "a/b", "a b", "ä", "a:b", strings.Repeat("n", 249), strings.Repeat("n", 250), "__cluster_metadata", "__x", "a\x00b", "-", "_"} {
		r := createTopics(createTopic(n, 1, 1))
		r.ValidateOnly = true
		s.ask(fmt.Sprintf("%.20q", n), 7, r)
	}
	s.ask("with an underscore", 7, createTopics(createTopic(s.own("a_b"), 1, 1)))
	s.ask("with a point there", 7, createTopics(createTopic(s.own("a.b"), 1, 1)))
	s.ask("both in one name", 7, createTopics(createTopic(s.own("a.b_c"), 1, 1)))
	s.ask("both at once", 7, createTopics(createTopic(s.own("c_d"), 1, 1), createTopic(s.own("c.d"), 1, 1)))
}

func topicConfigs(s *script) {
	t := s.topic("t", 1)
	s.ask("set to the default", 1, alter(onTopic, t, "=cleanup.policy=delete"))
	see := describeConfigs(onTopic, t, "cleanup.policy")
	see.IncludeSynonyms = true
	s.until("is the topic's own", 4, see, func(r kmsg.Response) bool {
		return r.(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0].Source == kmsg.ConfigSourceDynamicTopicConfig
	})
	s.ask("unset", 1, alter(onTopic, t, "-cleanup.policy"))
	s.until("is the default", 4, see, func(r kmsg.Response) bool {
		return r.(*kmsg.DescribeConfigsResponse).Resources[0].Configs[0].Source == kmsg.ConfigSourceDefaultConfig
	})
	all := s.quiet(4, describeConfigs(onTopic, t)).(*kmsg.DescribeConfigsResponse)
	var back []string
	for _, c := range all.Resources[0].Configs {
		if !c.ReadOnly && c.Value != nil {
			back = append(back, c.Name+"="+*c.Value)
		}
	}
	s.ask("written back", 1, alterOld(onTopic, t, back...))
}

// configValues asks for the same answer to right and wrong values of every topic key.
func configValues(s *script) {
	t := s.topic("t", 1)
	all := s.quiet(4, describeConfigs(onTopic, t)).(*kmsg.DescribeConfigsResponse)
	values := []string{"", "x", "-2", "-1", "0", "1", "1.5", "true", "TRUE", " 7 ", "2147483648", "9223372036854775808", "delete", "delete,delete", "none", "producer", "GZIP", "1:2", "*"}
	slices.SortFunc(all.Resources[0].Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int {
		return strings.Compare(a.Name, b.Name)
	})
	for _, c := range all.Resources[0].Configs {
		var took []string
		for _, v := range values {
			r := alter(onTopic, t, "="+c.Name+"="+v)
			r.ValidateOnly = true
			if s.quiet(1, r).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode == 0 {
				took = append(took, v)
			}
		}
		s.note("values that "+c.Name+" takes", took)
	}
}

func autoCreation(s *script) {
	n := s.own("t")
	s.ask("not asked to", 12, quietly(metadata(n)))
	r := metadata(n)
	r.AllowAutoTopicCreation = true
	s.ask("asked to", 12, r)
	s.until("is there", 12, quietly(metadata(n)), func(r kmsg.Response) bool {
		return len(r.(*kmsg.MetadataResponse).Topics[0].Partitions) == 1 && r.(*kmsg.MetadataResponse).Topics[0].Partitions[0].Leader == 1
	})
	bad := metadata("bad name!")
	bad.AllowAutoTopicCreation = true
	s.ask("a bad name", 12, bad)
}

// frames are not requests, or hardly.
func frames(s *script) {
	good := encode(versions("compare", "1"), 3, 1, "x")
	change := func(at int, b ...byte) []byte {
		return append(append([]byte{}, good[:at]...), append(b, good[at+len(b):]...)...)
	}
	s.bytes("a good one", good)
	s.bytes("size 0", []byte{0, 0, 0, 0})
	s.bytes("size -1", []byte{255, 255, 255, 255})
	s.bytes("size beyond socket.request.max.bytes", []byte{0x7f, 255, 255, 255, 0, 18, 0, 0})
	s.bytes("no such API", change(4, 0x03, 0xe8))
	s.bytes("API -1", change(4, 0xff, 0xff))
	s.bytes("a removed API", change(4, 0, 4))
	s.bytes("an API of the controller", change(4, 0, 52))
	s.bytes("version 99 of ApiVersions", change(6, 0, 99))
	s.bytes("version -1 of ApiVersions", change(6, 0xff, 0xff))
	s.bytes("HTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	s.bytes("TLS", []byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, 0, 0, 0, 0})
	m := encode(metadata("a"), 12, 1, "x")
	s.bytes("bytes cut off the body", append([]byte{0, 0, 0, byte(len(m) - 4 - 6)}, m[4:len(m)-6]...))
	s.bytes("bytes after the body", append([]byte{0, 0, 0, byte(len(m) - 4 + 3)}, append(m[4:len(m):len(m)], 1, 2, 3)...))
	lie := encode(metadata(), 1, 1, "x")
	s.bytes("a list of 2^31-1", append(lie[:len(lie)-4:len(lie)-4], 0x7f, 255, 255, 255))
	s.bytes("a list of 1,000,001", append(lie[:len(lie)-4:len(lie)-4], 0, 0x0f, 0x42, 0x41))
	s.bytes("a list of -2", append(lie[:len(lie)-4:len(lie)-4], 255, 255, 255, 254))
}

func unservedVersions(s *script) {
	t := s.own("t")
	for _, c := range []struct {
		v   int16
		req kmsg.Request
	}{
		{2, s.produce(t, 0, pack(recs(1)))}, {0, s.produce(t, 0, pack(recs(1)))}, {14, s.produce(t, 0, pack(recs(1)))}, {3, s.fetch(t, 0, 0)}, {19, s.fetch(t, 0, 0)}, {0, listOffsets(t, 0, -1)}, {12, listOffsets(t, 0, -1)},
		{14, metadata(t)}, {1, s.commit("g", -1, "", t, 0, 0)}, {11, s.commit("g", -1, "", t, 0, 0)}, {0, s.committed("g", t, 0)}, {11, s.committed("g", t, 0)},
		{7, findCoordinator("g")}, {10, join("g", "")}, {1, createTopics()}, {8, createTopics()}, {0, deleteTopics()}, {7, deleteTopics()}, {0, describeConfigs(onTopic, t)}, {5, describeConfigs(onTopic, t)},
		{1, leaderEpoch(t, 0, -1, 0)}, {5, leaderEpoch(t, 0, -1, 0)}, {4, deleteGroups()}, {3, kmsg.NewPtrAlterReplicaLogDirsRequest()},
	} {
		// The body may not be what that version wants: only whether the connection stays is of interest.
		func() {
			defer func() { recover() }()
			s.bytes(fmt.Sprint(kmsg.NameForKey(c.req.Key()), " v", c.v), encode(c.req, c.v, 1, "compare"))
		}()
	}
}
