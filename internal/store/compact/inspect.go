package compact

import (
	"time"

	"runnel/internal/kit/record"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/segment"
)

// Plan is what a pass over one log would do.
type Plan struct {
	Log              *commitlog.Log
	FirstDirty       int64
	FirstUncleanable int64
	CleanBytes       int64
	CleanableBytes   int64
	// Overdue says that max.compaction.lag.ms is exceeded.
	Overdue bool
	work    commitlog.Rewriting
}

// Ratio is the dirty share, by which logs compete.
func (p Plan) Ratio() float64 {
	if p.CleanableBytes == 0 {
		return 0
	}
	return float64(p.CleanableBytes) / float64(p.CleanBytes+p.CleanableBytes)
}

// Due says whether the log should be cleaned.
func (p Plan) Due() bool {
	return p.CleanableBytes > 0 && (p.Ratio() > p.Log.Config().MinCleanableRatio || p.Overdue)
}

// Inspect decides which offsets of the log may be cleaned (ondisk.md part 16). checkpoint
// is where the last pass ended, or -1.
func Inspect(l *commitlog.Log, checkpoint int64, now time.Time) (Plan, error) {
	w, cfg := l.Closed(), l.Config()
	p := Plan{Log: l, work: w, FirstDirty: checkpoint}
	if checkpoint < w.Offsets.LogStart || checkpoint > w.Offsets.End {
		p.FirstDirty = w.Offsets.LogStart
	}
	p.FirstUncleanable = w.Offsets.LastStable
	if n := len(w.Ends); n > 0 {
		p.FirstUncleanable = min(p.FirstUncleanable, w.Ends[n-1])
	} else {
		p.FirstUncleanable = p.FirstDirty
	}
	nowMs := record.Millis(now)
	for i, s := range w.Segments {
		if w.Ends[i] <= p.FirstDirty {
			p.CleanBytes += s.Size()
			continue
		}
		if cfg.MinCompactionLagMs > 0 {
			newest, _, err := s.Max()
			if err != nil {
				return p, err
			}
			if newest > nowMs-cfg.MinCompactionLagMs {
				p.FirstUncleanable = min(p.FirstUncleanable, s.Base())
			}
		}
		if s.Base() >= p.FirstUncleanable {
			break
		}
		p.CleanableBytes += s.Size()
		if cfg.MaxCompactionLagMs > 0 && cfg.MaxCompactionLagMs < nowMs {
			first, ok, err := s.FirstTimestamp()
			if err != nil {
				return p, err
			}
			p.Overdue = p.Overdue || ok && first > 0 && first < nowMs-cfg.MaxCompactionLagMs
		}
	}
	p.FirstUncleanable = max(p.FirstUncleanable, p.FirstDirty)
	return p, nil
}

// groups puts neighbouring segments together that fit into one.
func groups(w commitlog.Rewriting, end int64, segmentBytes, indexBytes int64) [][]*segment.Segment {
	var out [][]*segment.Segment
	var size, index, times int64
	for i, s := range w.Segments {
		if s.Base() >= end {
			break
		}
		last := w.Ends[i] - 1
		si, st := s.IndexSizes()
		n := len(out)
		if n > 0 {
			g := out[n-1]
			fits := size+s.Size() <= segmentBytes && index+si <= indexBytes && times+st <= indexBytes
			if fits && (s.Size() == 0 || last-g[0].Base() <= 1<<31-1) {
				out[n-1] = append(g, s)
				size, index, times = size+s.Size(), index+si, times+st
				continue
			}
		}
		out = append(out, []*segment.Segment{s})
		size, index, times = s.Size(), si, st
	}
	return out
}
