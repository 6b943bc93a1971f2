package web

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/node"
	"runnel/internal/repl/partition"
	"runnel/internal/serve/server"
)

// collector turns a Status into metrics, under the names that the usual exporter gives
// Kafka's (spec: metrics.md).
type collector struct {
	n Source
	d map[string]*prometheus.Desc
}

// described lists name, help and labels of every metric.
var described = []struct {
	name, help string
	labels     []string
}{
	{"kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller", nil},
	{"kafka_controller_kafkacontroller_offlinepartitionscount", "partitions without a leader or with a failed log here", nil},
	{"kafka_controller_kafkacontroller_activebrokercount", "registered brokers that are not fenced", nil},
	{"kafka_controller_kafkacontroller_fencedbrokercount", "registered brokers that are fenced", nil},
	{"kafka_controller_kafkacontroller_globaltopiccount", "topics", nil},
	{"kafka_server_replicamanager_underreplicatedpartitions", "led partitions with fewer in-sync replicas than replicas", nil},
	{"kafka_server_replicamanager_underminisrpartitioncount", "led partitions below min.insync.replicas", nil},
	{"kafka_server_replicamanager_atminisrpartitioncount", "led partitions at min.insync.replicas", nil},
	{"kafka_server_replicamanager_offlinereplicacount", "replicas whose log failed", nil},
	{"kafka_server_replicamanager_leadercount", "partitions led here", nil},
	{"kafka_server_replicamanager_partitioncount", "replicas here", nil},
	{"kafka_server_kafkaserver_brokerstate", "0 not running, 1 starting, 2 recovery, 3 running, 6 stopping, 7 shutting down", nil},
	{"kafka_log_logmanager_offlinelogdirectorycount", "log directories that failed", nil},
	{"kafka_log_logmanager_logdirectoryoffline", "1 if the directory failed", []string{"logdirectory"}},
	{"runnel_log_directory_full", "1 if appends are refused for want of space", []string{"logdirectory"}},
	{"runnel_log_directory_free_bytes", "space left for appends", []string{"logdirectory"}},
	{"runnel_log_directory_total_bytes", "size of the directory's file system", []string{"logdirectory"}},
	{"kafka_server_raft_metrics_current_epoch", "epoch of the metadata quorum", nil},
	{"kafka_server_raft_metrics_current_leader", "leader of the metadata quorum, -1 unknown", nil},
	{"kafka_server_raft_metrics_high_watermark", "end of the committed metadata log", nil},
	{"kafka_server_broker_metadata_metrics_last_applied_record_offset", "offset of the newest metadata record in force here", nil},
	{"kafka_server_brokertopicmetrics_messagesin_total", "records appended by clients", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_bytesin_total", "bytes of batches appended by clients", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_bytesout_total", "bytes of batches given to consumers", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_bytesrejected_total", "bytes of batches refused as too large", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_totalproducerequests_total", "partitions in produce requests", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_failedproducerequests_total", "refused partitions in produce requests", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_totalfetchrequests_total", "partitions read by fetches", []string{"topic"}},
	{"kafka_server_brokertopicmetrics_failedfetchrequests_total", "failed partitions of fetches", []string{"topic"}},
	{"kafka_log_log_size", "bytes of a partition's log", []string{"topic", "partition"}},
	{"kafka_log_log_logstartoffset", "first offset of a partition", []string{"topic", "partition"}},
	{"kafka_log_log_logendoffset", "offset after the last record of a partition", []string{"topic", "partition"}},
	{"kafka_log_log_numlogsegments", "segments of a partition", []string{"topic", "partition"}},
	{"kafka_server_fetchsessioncache_numincrementalfetchsessions", "fetch sessions", nil},
	{"kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "partitions in fetch sessions", nil},
	{"kafka_server_socket_server_metrics_connection_count", "open connections", []string{"listener"}},
	{"kafka_server_socket_server_metrics_connection_creation_total", "connections accepted", []string{"listener"}},
	{"runnel_connections_refused_total", "connections over max.connections.per.ip", []string{"listener"}},
	{"runnel_connections_malformed_total", "connections closed because of what they sent", []string{"listener"}},
	{"runnel_network_in_bytes_total", "bytes received on connections that have ended", []string{"listener"}},
	{"runnel_network_out_bytes_total", "bytes sent", []string{"listener"}},
	{"kafka_network_requestmetrics_requests_total", "requests answered", []string{"request", "listener"}},
	{"kafka_network_requestmetrics_totaltime_seconds", "time from a whole request to its answer", []string{"request", "listener"}},
}

func newCollector(n Source) *collector {
	c := &collector{n: n, d: map[string]*prometheus.Desc{}}
	for _, m := range described {
		c.d[m.name] = prometheus.NewDesc(m.name, m.help, m.labels, nil)
	}
	return c
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.d {
		out <- d
	}
}

// emitter sends metrics of one scrape.
type emitter struct {
	c   *collector
	out chan<- prometheus.Metric
}

func (e emitter) gauge(name string, v float64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(e.c.d[name], prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(name string, v int64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(e.c.d[name], prometheus.CounterValue, float64(v), labels...)
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	s, e := c.n.Status(), emitter{c, out}
	e.cluster(s)
	e.replicas(s)
	e.topics(s)
	for _, d := range s.Dirs {
		e.gauge("kafka_log_logmanager_logdirectoryoffline", bit(d.Err != nil), d.Path)
		e.gauge("runnel_log_directory_full", bit(d.Full), d.Path)
		e.gauge("runnel_log_directory_free_bytes", float64(d.Space.Free), d.Path)
		e.gauge("runnel_log_directory_total_bytes", float64(d.Space.Total), d.Path)
	}
	for _, srv := range s.Servers {
		e.network(srv)
	}
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (e emitter) cluster(s node.Status) {
	offline := 0
	for _, d := range s.Dirs {
		if d.Err != nil {
			offline++
		}
	}
	e.gauge("kafka_log_logmanager_offlinelogdirectorycount", float64(offline))
	e.gauge("kafka_controller_kafkacontroller_activecontrollercount", bit(s.ActiveControl))
	e.gauge("kafka_controller_kafkacontroller_activebrokercount", float64(s.Brokers-s.FencedBrokers))
	e.gauge("kafka_controller_kafkacontroller_fencedbrokercount", float64(s.FencedBrokers))
	e.gauge("kafka_controller_kafkacontroller_globaltopiccount", float64(s.Topics))
	e.gauge("kafka_server_kafkaserver_brokerstate", float64(s.BrokerState))
	e.gauge("kafka_server_raft_metrics_current_epoch", float64(s.QuorumEpoch))
	e.gauge("kafka_server_raft_metrics_current_leader", float64(s.QuorumLeader))
	e.gauge("kafka_server_raft_metrics_high_watermark", float64(s.MetadataHW))
	e.gauge("kafka_server_broker_metadata_metrics_last_applied_record_offset", float64(s.MetadataOffset))
	e.gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", float64(s.FetchSessions))
	e.gauge("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", float64(s.FetchParts))
}

func (e emitter) replicas(s node.Status) {
	var leaders, offline, under, belowMin, atMin int
	for _, p := range s.Partitions {
		st, risk := p.State(), p.Risk()
		if st.Role == partition.Leader {
			leaders++
		}
		for _, c := range []struct {
			is bool
			n  *int
		}{{risk.Offline, &offline}, {risk.UnderReplicated, &under}, {risk.UnderMinISR, &belowMin}, {risk.AtMinISR, &atMin}} {
			if c.is {
				*c.n++
			}
		}
		if st.Log != nil {
			o, index := st.Log.Offsets(), strconv.Itoa(int(p.TP().Partition))
			e.gauge("kafka_log_log_size", float64(st.Log.Size()), p.TP().Topic, index)
			e.gauge("kafka_log_log_logstartoffset", float64(o.LogStart), p.TP().Topic, index)
			e.gauge("kafka_log_log_logendoffset", float64(o.End), p.TP().Topic, index)
			e.gauge("kafka_log_log_numlogsegments", float64(st.Log.Segments()), p.TP().Topic, index)
		}
	}
	e.gauge("kafka_server_replicamanager_leadercount", float64(leaders))
	e.gauge("kafka_server_replicamanager_partitioncount", float64(len(s.Partitions)))
	e.gauge("kafka_server_replicamanager_offlinereplicacount", float64(offline))
	e.gauge("kafka_server_replicamanager_underreplicatedpartitions", float64(under))
	e.gauge("kafka_server_replicamanager_underminisrpartitioncount", float64(belowMin))
	e.gauge("kafka_server_replicamanager_atminisrpartitioncount", float64(atMin))
	e.gauge("kafka_controller_kafkacontroller_offlinepartitionscount", float64(s.Leaderless+offline))
}

// topics adds up the partitions' counters.
func (e emitter) topics(s node.Status) {
	sums := map[string]*[8]int64{}
	for _, p := range s.Partitions {
		sum := sums[p.TP().Topic]
		if sum == nil {
			sum = &[8]int64{}
			sums[p.TP().Topic] = sum
		}
		st := p.Stats()
		for i, v := range []int64{
			st.MessagesIn.Load(), st.BytesIn.Load(), st.BytesOut.Load(), st.BytesRejected.Load(),
			st.ProduceRequests.Load(), st.FailedProduce.Load(), st.FetchRequests.Load(), st.FailedFetch.Load(),
		} {
			sum[i] += v
		}
	}
	names := [8]string{"messagesin", "bytesin", "bytesout", "bytesrejected", "totalproducerequests", "failedproducerequests", "totalfetchrequests", "failedfetchrequests"}
	for topic, sum := range sums {
		for i, n := range names {
			e.counter("kafka_server_brokertopicmetrics_"+n+"_total", sum[i], topic)
		}
	}
}

func (e emitter) network(srv *server.Server) {
	st, l := srv.Stats(), srv.Name()
	e.gauge("kafka_server_socket_server_metrics_connection_count", float64(st.Open.Load()), l)
	e.counter("kafka_server_socket_server_metrics_connection_creation_total", st.Accepted.Load(), l)
	e.counter("runnel_connections_refused_total", st.Refused.Load(), l)
	e.counter("runnel_connections_malformed_total", st.Malformed.Load(), l)
	e.counter("runnel_network_in_bytes_total", st.BytesIn.Load(), l)
	e.counter("runnel_network_out_bytes_total", st.BytesOut.Load(), l)
	bounds := server.LatencyBounds()
	for key := range st.APIs {
		a := &st.APIs[key]
		n := a.Requests.Load()
		if n == 0 {
			continue
		}
		name := kmsg.NameForKey(int16(key))
		e.counter("kafka_network_requestmetrics_requests_total", n, name, l)
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i, b := range bounds {
			sum += uint64(a.Latency[i].Load())
			buckets[b.Seconds()] = sum
		}
		sum += uint64(a.Latency[len(bounds)].Load())
		e.out <- prometheus.MustNewConstHistogram(e.c.d["kafka_network_requestmetrics_totaltime_seconds"], sum, float64(a.TotalNanos.Load())/1e9, buckets, name, l)
	}
}
