package config

import (
	"strconv"
	"strings"

	"runnel/internal/kit/record"
)

// Source says where a value comes from; the numbers are DescribeConfigs' ConfigSource.
type Source int8

const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2
	SourceDynamicCluster Source = 3
	SourceStatic         Source = 4
	SourceDefault        Source = 5
	SourceClientMetrics  Source = 7
	SourceGroup          Source = 8
)

// Layers is one broker's configuration, the highest precedence first: values set for
// this broker, cluster-wide values (both from the metadata log), the file, defaults.
// Immutable: a change makes a new one.
type Layers struct {
	PerBroker, Cluster, Static map[string]string
}

// With gives the layers with other dynamic values.
func (l *Layers) With(perBroker, cluster map[string]string) *Layers {
	return &Layers{PerBroker: perBroker, Cluster: cluster, Static: l.Static}
}

func (l *Layers) each(f func(src Source, values map[string]string) bool) {
	for _, layer := range [...]struct {
		src    Source
		values map[string]string
	}{{SourceDynamicBroker, l.PerBroker}, {SourceDynamicCluster, l.Cluster}, {SourceStatic, l.Static}} {
		if !f(layer.src, layer.values) {
			return
		}
	}
}

// fallbacks are the broker keys that stand in for another one, in lookup order.
var fallbacks = map[string][]string{
	"log.roll.ms":           {"log.roll.hours"},
	"log.roll.jitter.ms":    {"log.roll.jitter.hours"},
	"log.retention.ms":      {"log.retention.minutes", "log.retention.hours"},
	"log.flush.interval.ms": {"log.flush.scheduler.interval.ms"},
	"log.dirs":              {"log.dir"},
	"node.id":               {"broker.id"},
}

// family is the key with all its stand-ins.
func family(name string) []string { return append([]string{name}, fallbacks[name]...) }

// Lookup gives the effective value of a broker key, its stand-ins converted to the key's
// unit. ok is false where there is none.
func (l *Layers) Lookup(name string) (value string, src Source, ok bool) {
	return l.lookup(family(name))
}

func (l *Layers) lookup(names []string) (value string, src Source, ok bool) {
	l.each(func(s Source, values map[string]string) bool {
		for _, n := range names {
			if v, set := values[n]; set {
				value, src, ok = convert(names[0], n, v), s, true
				return false
			}
		}
		return true
	})
	if ok {
		return value, src, true
	}
	for _, n := range names {
		if k := BrokerKey(n); k != nil && k.HasDefault() {
			return convert(names[0], n, k.Default), SourceDefault, true
		}
	}
	return "", SourceDefault, false
}

// convert turns hours and minutes into the milliseconds of the key they stand in for.
func convert(want, got, value string) string {
	unit := func(name string) int64 {
		switch {
		case strings.HasSuffix(name, ".hours"):
			return 3600000
		case strings.HasSuffix(name, ".minutes"):
			return 60000
		}
		return 1
	}
	factor := unit(got) / unit(want)
	if factor <= 1 {
		return strings.TrimSpace(value)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return value
	}
	if n < 0 {
		return "-1"
	}
	return strconv.FormatInt(n*factor, 10)
}

// String, Int, Float, Bool and List give effective values of keys that have one; values
// were checked when they were stored, so that a value that cannot be read is a
// programming error and reads as zero.
func (l *Layers) String(name string) string {
	v, _, _ := l.Lookup(name)
	return v
}

func (l *Layers) Int(name string) int64 {
	v, _, _ := l.Lookup(name)
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

func (l *Layers) Float(name string) float64 {
	v, _, _ := l.Lookup(name)
	f, _ := strconv.ParseFloat(v, 64)
	return f
}

func (l *Layers) Bool(name string) bool { return strings.EqualFold(l.String(name), "true") }

func (l *Layers) List(name string) []string { return SplitList(l.String(name)) }

// TopicValue is the effective value of a topic key for a topic with these overrides.
func (l *Layers) TopicValue(overrides map[string]string, name string) (value string, src Source, ok bool) {
	if v, set := overrides[name]; set {
		return v, SourceTopic, true
	}
	k := TopicKey(name)
	if k == nil {
		return "", SourceDefault, false
	}
	if len(k.Synonyms) > 0 {
		names := k.Synonyms
		want := append([]string{name}, names...)
		var found bool
		l.each(func(s Source, values map[string]string) bool {
			for _, n := range names {
				if v, set := values[n]; set {
					value, src, found = convert(want[0], n, v), s, true
					return false
				}
			}
			return true
		})
		if found {
			return value, src, true
		}
	}
	if !k.HasDefault() {
		return "", SourceDefault, false
	}
	return k.Default, SourceDefault, true
}

// Topic is the snapshot that the log engine acts on.
func (l *Layers) Topic(overrides map[string]string) *Log {
	str := func(name string) string {
		v, _, _ := l.TopicValue(overrides, name)
		return strings.TrimSpace(v)
	}
	num := func(name string) int64 {
		n, _ := strconv.ParseInt(str(name), 10, 64)
		return n
	}
	yes := func(name string) bool { return strings.EqualFold(str(name), "true") }
	out := &Log{
		SegmentBytes: int32(num("segment.bytes")), SegmentMs: num("segment.ms"), SegmentJitterMs: num("segment.jitter.ms"),
		SegmentIndexBytes: int32(num("segment.index.bytes")), IndexIntervalBytes: int32(num("index.interval.bytes")),
		FlushMessages: num("flush.messages"), FlushMs: num("flush.ms"),
		RetentionBytes: num("retention.bytes"), RetentionMs: num("retention.ms"), FileDeleteDelayMs: num("file.delete.delay.ms"),
		DeleteRetentionMs: num("delete.retention.ms"), MinCompactionLagMs: num("min.compaction.lag.ms"), MaxCompactionLagMs: num("max.compaction.lag.ms"),
		UncleanElection: yes("unclean.leader.election.enable"), MinInsyncReplicas: int32(num("min.insync.replicas")),
		Preallocate: yes("preallocate"), MaxMessageBytes: int32(num("max.message.bytes")), MaxDecompressedBytes: int32(num("max.decompressed.message.bytes")),
		TimestampBeforeMaxMs: num("message.timestamp.before.max.ms"), TimestampAfterMaxMs: num("message.timestamp.after.max.ms"),
		GzipLevel: int(num("compression.gzip.level")), LZ4Level: int(num("compression.lz4.level")), ZstdLevel: int(num("compression.zstd.level")),
	}
	out.MinCleanableRatio, _ = strconv.ParseFloat(str("min.cleanable.dirty.ratio"), 64)
	if n, err := strconv.ParseInt(overrides["internal.segment.bytes"], 10, 32); err == nil {
		out.SegmentBytes = int32(n)
	}
	for _, p := range SplitList(str("cleanup.policy")) {
		out.Compact = out.Compact || p == "compact"
		out.Delete = out.Delete || p == "delete"
	}
	if str("message.timestamp.type") == "LogAppendTime" {
		out.TimestampType = LogAppendTime
	}
	switch c := str("compression.type"); c {
	case "producer":
		out.Producer = true
	default:
		for codec := record.None; codec <= record.Zstd; codec++ {
			if codec.String() == c {
				out.Codec = codec
			}
		}
	}
	if out.RetentionMs < 0 {
		out.RetentionMs = -1
	}
	return out
}
