package commitlog

import (
	"errors"

	"runnel/internal/kit/record"
	"runnel/internal/store/segment"
)

// OffsetTime is a record's place in time.
type OffsetTime struct {
	Offset, Timestamp int64
	Epoch             int32
}

// maxDecompressed bounds what one stored batch may decompress to while we look for a
// timestamp in it. A batch beyond it is answered by its first offset.
const maxDecompressed = 256 << 20

// OffsetForTimestamp finds the first record whose timestamp is not below ts.
func (l *Log) OffsetForTimestamp(ts int64) (at OffsetTime, found bool, err error) {
	for {
		at, found, err = l.byTime(ts)
		if !errors.Is(err, segment.ErrGone) {
			return at, found, err
		}
	}
}

func (l *Log) byTime(ts int64) (at OffsetTime, found bool, err error) {
	v := l.pub.load()
	if err := l.Failed(); err != nil {
		return at, false, err
	}
	for i := v.floor(v.LogStart); i < len(v.segments); i++ {
		s, limit := v.segments[i], v.limit(i)
		largest, _, err := s.Max()
		if err != nil {
			return at, false, l.readErr(err)
		}
		if largest < ts {
			continue
		}
		// The batch's maximum may belong to records below the log start: go on then.
		for from := max(v.LogStart, s.Base()); ; {
			spot, ok, err := s.FindTime(ts, from, limit)
			if err != nil {
				return at, false, l.readErr(err)
			}
			if !ok {
				break
			}
			at, found, err = l.recordByTime(s, spot, ts, v.LogStart)
			if err != nil || found {
				return at, found, err
			}
			from = spot.Last + 1
		}
	}
	return at, false, nil
}

// MaxTimestamp finds the first record that carries the log's largest timestamp.
func (l *Log) MaxTimestamp() (at OffsetTime, found bool, err error) {
	v := l.pub.load()
	best, bestTS, bestOffset := -1, int64(-1), int64(0)
	for i, s := range v.segments {
		ts, off, err := s.Max()
		if err != nil {
			return at, false, l.readErr(err)
		}
		if ts > bestTS {
			best, bestTS, bestOffset = i, ts, off
		}
	}
	if best < 0 {
		return at, false, nil
	}
	s := v.segments[best]
	spot, ok, err := s.Locate(bestOffset, v.limit(best))
	if errors.Is(err, segment.ErrGone) {
		return l.MaxTimestamp()
	}
	if err != nil || !ok {
		return at, false, err
	}
	return l.recordByTime(s, spot, bestTS, v.LogStart)
}

// recordByTime looks into one batch.
func (l *Log) recordByTime(s *segment.Segment, spot segment.Spot, ts, from int64) (at OffsetTime, found bool, err error) {
	region, err := s.Region(spot.Position, int64(spot.Size))
	if err != nil {
		return at, false, l.readErr(err)
	}
	raw, err := region.ReadAll()
	region.Done()
	if err != nil {
		return at, false, l.readErr(err)
	}
	b, _, err := record.Next(raw)
	if err != nil {
		return at, false, l.readErr(err)
	}
	at = OffsetTime{Offset: max(b.BaseOffset(), from), Timestamp: b.MaxTimestamp(), Epoch: b.LeaderEpoch()}
	payload := b.Payload()
	if b.Codec() != record.None {
		payload, err = record.Decompress(nil, b.Codec(), payload, maxDecompressed)
		if errors.Is(err, record.ErrTooLarge) {
			return at, true, nil
		}
		if err != nil {
			return at, false, err
		}
	}
	base := b.BaseTimestamp()
	for range b.Count() {
		r, err := record.ReadRecord(payload, false)
		if err != nil {
			return at, false, err
		}
		payload = payload[r.Size:]
		t, off := base+r.TimestampDelta, b.BaseOffset()+int64(r.OffsetDelta)
		if b.IsLogAppendTime() {
			t = b.MaxTimestamp()
		}
		if t >= ts && off >= from {
			return OffsetTime{off, t, b.LeaderEpoch()}, true, nil
		}
	}
	return at, false, nil
}
