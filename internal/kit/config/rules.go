package config

import "runnel/internal/kit/record"

// Rules is what the topic demands of a produced batch. maxDecompressed bounds, in bytes,
// what one batch may decompress to whatever max.decompressed.message.bytes says.
func (l *Log) Rules(maxDecompressed int) record.Rules {
	return record.Rules{
		MaxMessageBytes: int(l.MaxMessageBytes),
		KeyRequired:     l.Compact,
		AppendTime:      l.TimestampType == LogAppendTime,
		BeforeMaxMs:     l.TimestampBeforeMaxMs,
		AfterMaxMs:      l.TimestampAfterMaxMs,
		KeepCodec:       l.Producer,
		Codec:           l.Codec,
		Level:           l.CodecLevel(l.Codec),
		MaxDecompressed: min(int(l.MaxDecompressedBytes), maxDecompressed),
	}
}
