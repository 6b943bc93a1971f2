package controller

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
)

// placer spreads the replicas of new partitions. The leaders go round the racks, and
// inside each rack round its brokers; the other replicas follow from rack to rack, so that
// no rack gets a second replica before every rack has one. Without racks this puts replica j of partition i
// on broker (start+i+j) mod n.
type placer struct {
	racks    []*rack
	start    int
	unfenced int
	total    int
}

// rack lists a rack's unfenced brokers, which come first, and its fenced ones.
type rack struct {
	name             string
	unfenced, fenced []int32
	start            int
}

// placer reads the usable brokers: those with a directory that is not cordoned.
func (c *core) placer() *placer {
	pl := &placer{}
	byName := map[string]*rack{}
	for _, b := range c.img.Brokers() {
		if !b.Placeable() {
			continue
		}
		name := ""
		if b.Rack != nil {
			name = "r" + *b.Rack // apart from the rack of brokers without one
		}
		r := byName[name]
		if r == nil {
			r = &rack{name: name}
			byName[name] = r
			pl.racks = append(pl.racks, r)
		}
		pl.total++
		if b.Active() {
			r.unfenced = append(r.unfenced, b.ID)
			pl.unfenced++
		} else {
			r.fenced = append(r.fenced, b.ID)
		}
	}
	slices.SortFunc(pl.racks, func(a, b *rack) int { return cmp.Compare(a.name, b.name) })
	for _, r := range pl.racks {
		if len(r.unfenced) > 0 {
			r.start = int(c.opt.Random() % uint64(len(r.unfenced)))
		}
	}
	if len(pl.racks) > 0 {
		pl.start = int(c.opt.Random() % uint64(len(pl.racks)))
	}
	return pl
}

// check says why partitions with this many replicas cannot be placed.
func (pl *placer) check(replicas int) *apiError {
	switch {
	case replicas <= 0:
		return fail(kerr.InvalidReplicationFactor, "Invalid replication factor %d: the replication factor must be positive.", replicas)
	case pl.unfenced == 0:
		return fail(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): All brokers are currently fenced.", replicas)
	case replicas > pl.total:
		return fail(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): The target replication factor of %d cannot be reached because only %d broker(s) are registered or some brokers have all their log directories cordoned.", replicas, replicas, pl.total)
	}
	return nil
}

// place gives the replicas of partition i. check must have passed.
func (pl *placer) place(i, replicas int) []int32 {
	out := make([]int32, 0, replicas)
	used := make([]int, len(pl.racks))
	n := len(pl.racks)
	first := (pl.start + i) % n
	for len(pl.racks[first].unfenced) == 0 {
		first = (first + 1) % n
	}
	round := i / n
	out = append(out, pl.racks[first].at(round, 0))
	used[first]++
	for at := first + 1; len(out) < replicas; at++ {
		r := pl.racks[at%n]
		if k := used[at%n]; k < len(r.unfenced)+len(r.fenced) {
			out = append(out, r.at(round, k))
			used[at%n]++
		}
	}
	return out
}

// at is the rack's k-th broker in a round.
func (r *rack) at(round, k int) int32 {
	if k < len(r.unfenced) {
		return r.unfenced[(r.start+round+k)%len(r.unfenced)]
	}
	return r.fenced[(round+k-len(r.unfenced))%len(r.fenced)]
}

// checkAssignment applies the rules of a manual assignment (semantics.md §13.1).
func (c *core) checkAssignment(replicas []int32, size int) *apiError {
	if len(replicas) == 0 {
		return fail(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for n, id := range sorted {
		if n > 0 && sorted[n-1] == id {
			return fail(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
		b := c.img.Broker(id)
		if b == nil {
			return fail(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if !b.Placeable() {
			return fail(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but all its log directories are cordoned.", id)
		}
	}
	if size > 0 && len(replicas) != size {
		return fail(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(replicas), size)
	}
	return nil
}

// activeOf keeps the active brokers.
func (c *core) activeOf(replicas []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(replicas), func(id int32) bool { return !c.active(id) })
}

// newPartition is a partition as it is created: led by the first of its active replicas.
func (c *core) newPartition(replicas, isr []int32) *image.Partition {
	p := &image.Partition{Replicas: replicas, ISR: isr, Leader: isr[0]}
	if c.img.MetadataVersion() >= feature.DirectoryAssignment {
		p.Directories = make([]ids.UUID, len(replicas))
		for n, id := range replicas {
			p.Directories[n] = c.defaultDir(id)
		}
	}
	return p
}

// defaultDir is where a new replica goes: a broker's only directory is known; among
// several the broker chooses and tells (KIP-858).
func (c *core) defaultDir(id int32) ids.UUID {
	b := c.img.Broker(id)
	switch {
	case b == nil || len(b.LogDirs) > 1:
		return ids.DirUnassigned
	case len(b.LogDirs) == 1:
		return b.LogDirs[0]
	}
	return ids.DirMigrating
}
