package config

import "runnel/internal/kit/record"

// TimestampType says whose time a record carries.
type TimestampType int8

const (
	CreateTime TimestampType = iota
	LogAppendTime
)

// Log is an immutable snapshot of one topic's effective configuration: what the log
// engine and the partition act on. All times are milliseconds; -1 means without limit
// where the key allows it.
type Log struct {
	SegmentBytes         int32
	SegmentMs            int64
	SegmentJitterMs      int64
	SegmentIndexBytes    int32
	IndexIntervalBytes   int32
	FlushMessages        int64
	FlushMs              int64
	RetentionBytes       int64
	RetentionMs          int64
	FileDeleteDelayMs    int64
	DeleteRetentionMs    int64
	MinCompactionLagMs   int64
	MaxCompactionLagMs   int64
	MinCleanableRatio    float64
	Compact, Delete      bool // cleanup.policy
	UncleanElection      bool
	MinInsyncReplicas    int32
	Preallocate          bool
	MaxMessageBytes      int32
	MaxDecompressedBytes int32 // what one batch may decompress to
	TimestampType        TimestampType
	TimestampBeforeMaxMs int64
	TimestampAfterMaxMs  int64
	// Codec is compression.type; Producer true means "producer": keep the sender's codec.
	Codec     record.Codec
	Producer  bool
	GzipLevel int
	LZ4Level  int
	ZstdLevel int
}

// CodecLevel is the level for one codec under this configuration.
func (l *Log) CodecLevel(c record.Codec) int {
	switch c {
	case record.Gzip:
		return l.GzipLevel
	case record.LZ4:
		return l.LZ4Level
	case record.Zstd:
		return l.ZstdLevel
	}
	return record.DefaultLevel
}

const maxInt64 = 1<<63 - 1

// DefaultLog is Kafka's default topic configuration (spec: LogConfig).
func DefaultLog() *Log {
	return &Log{
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600 * 1000, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		FlushMessages: maxInt64, FlushMs: maxInt64, RetentionBytes: -1, RetentionMs: 7 * 24 * 3600 * 1000,
		FileDeleteDelayMs: 60000, DeleteRetentionMs: 86400000, MaxCompactionLagMs: maxInt64, MinCleanableRatio: 0.5,
		Delete: true, MinInsyncReplicas: 1, MaxMessageBytes: 1048588, MaxDecompressedBytes: 2147483639, TimestampBeforeMaxMs: maxInt64,
		TimestampAfterMaxMs: 3600000, Producer: true, GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3,
	}
}
