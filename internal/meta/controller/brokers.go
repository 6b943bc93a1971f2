package controller

import (
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// session is what the controller knows of a living broker; it is never in the log.
type session struct {
	epoch          int64
	contact        time.Time // arrival of the last heartbeat
	metadataOffset int64     // what the broker's image had reached by then
	// shutdownOffset is the last record of the broker's controlled shutdown, -1 outside
	// of one: it may stop when all active brokers have seen that.
	shutdownOffset int64
}

func (c *core) alive(id int32, epoch int64, now time.Time) bool {
	s := c.sessions[id]
	return s != nil && s.epoch == epoch && now.Before(s.contact.Add(c.opt.SessionTimeout))
}

// registerBroker serves BrokerRegistration (metadata-records.md §6).
func (c *core) registerBroker(rq *Request, body *kmsg.BrokerRegistrationRequest, now time.Time) result {
	resp := body.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	res := result{response: resp}
	if !c.onCluster(rq, opClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	}
	if err := c.checkRegistration(body, now); err != nil {
		c.opt.Logger.Warn("broker registration refused", "broker", body.BrokerID, "error", err.text)
		resp.ErrorCode = err.code()
		return res
	}
	old := c.img.Broker(body.BrokerID)
	r := &metarec.RegisterBroker{
		BrokerID: body.BrokerID, IncarnationID: body.IncarnationID, BrokerEpoch: c.next, Rack: body.Rack, Fenced: true,
		Features: featureRanges(body.Features),
	}
	for _, l := range body.Listeners {
		r.EndPoints = append(r.EndPoints, metarec.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	if c.img.MetadataVersion() >= feature.DirectoryAssignment {
		for _, d := range body.LogDirs {
			r.LogDirs = append(r.LogDirs, d)
		}
	}
	if c.img.MetadataVersion() >= feature.Cordoning {
		r.CordonedLogDirs = []ids.UUID{}
		if old != nil {
			// The broker's first heartbeat says which are cordoned now.
			r.CordonedLogDirs = slices.DeleteFunc(slices.Clone(old.CordonedDirs), func(d ids.UUID) bool { return !slices.Contains(r.LogDirs, d) })
		}
	}
	switch {
	case old != nil && old.Incarnation == r.IncarnationID:
		// The same process again: its epoch, and so its place in ISRs, stays (KAFKA-16952).
		r.BrokerEpoch, r.Fenced, r.InControlledShutdown = old.Epoch, old.Fenced, old.ShuttingDown
	case old != nil:
		clean := body.Version >= 3 && body.PreviousBrokerEpoch == old.Epoch
		res.records = c.removeFromISRs(removal{broker: body.BrokerID, unclean: !clean && c.img.ELREnabled()})
	}
	res.records = append(res.records, r)
	resp.BrokerEpoch = r.BrokerEpoch
	return res
}

func featureRanges(in []kmsg.BrokerRegistrationRequestFeature) []metarec.FeatureRange {
	out := make([]metarec.FeatureRange, len(in))
	for i, f := range in {
		out[i] = metarec.FeatureRange{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion}
	}
	return out
}

func (c *core) checkRegistration(body *kmsg.BrokerRegistrationRequest, now time.Time) *apiError {
	if body.ClusterID != c.opt.ClusterID {
		return fail(kerr.InconsistentClusterID, "Expected cluster ID %s, but got cluster ID %s", c.opt.ClusterID, body.ClusterID)
	}
	old := c.img.Broker(body.BrokerID)
	// A broker in this very process replaces an earlier process of this node, which holds
	// the log directories no more: it need not wait for the old session to end.
	if old != nil && body.BrokerID != c.opt.NodeID && old.Incarnation != ids.UUID(body.IncarnationID) && !old.ShuttingDown && c.alive(old.ID, old.Epoch, now) {
		return fail(kerr.DuplicateBrokerRegistration, "Another broker is registered with that broker id. If the broker was recently restarted this should self-resolve once the heartbeat manager expires the broker's session.")
	}
	if body.IsMigratingZkBroker {
		return fail(kerr.BrokerIDNotRegistered, "Controller does not support registering ZK brokers.")
	}
	if err := c.checkLogDirs(body); err != nil {
		return err
	}
	return c.checkSupportedFeatures(featureRanges(body.Features))
}

func (c *core) checkLogDirs(body *kmsg.BrokerRegistrationRequest) *apiError {
	if c.img.MetadataVersion() < feature.DirectoryAssignment {
		return nil
	}
	if len(body.LogDirs) == 0 {
		return fail(kerr.InvalidRegistration, "No directories specified in request")
	}
	seen := map[ids.UUID]bool{}
	for _, d := range body.LogDirs {
		dir := ids.UUID(d)
		if dir.Reserved() {
			return fail(kerr.InvalidRegistration, "Reserved directory ID in request: %s", dir)
		}
		if seen[dir] {
			return fail(kerr.InvalidRegistration, "Duplicate directory ID in request: %s", dir)
		}
		seen[dir] = true
	}
	for _, b := range c.img.Brokers() {
		for _, dir := range b.LogDirs {
			if b.ID != body.BrokerID && seen[dir] {
				return fail(kerr.InvalidRegistration, "Broker %d is already registered with directory %s", b.ID, dir)
			}
		}
	}
	return nil
}

// checkSupportedFeatures requires a node to run at every finalized level.
func (c *core) checkSupportedFeatures(have []metarec.FeatureRange) *apiError {
	supports := func(name string) feature.Range {
		for _, f := range have {
			if f.Name == name {
				return feature.Range{Name: name, Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion}
			}
		}
		return feature.Range{Name: name}
	}
	if !slices.ContainsFunc(have, func(f metarec.FeatureRange) bool { return f.Name == feature.MetadataVersion }) {
		return fail(kerr.InvalidRegistration, "Request features do not contain 'metadata.version'")
	}
	for name, level := range c.img.Features() {
		if r := supports(name); !r.Contains(level) {
			return fail(kerr.UnsupportedVersion, "Unable to register because the broker does not support finalized version %d of %s. The broker wants a version between %d and %d, inclusive.", level, name, r.Min, r.Max)
		}
	}
	return nil
}

// unregisterBroker serves UnregisterBroker.
func (c *core) unregisterBroker(rq *Request, body *kmsg.UnregisterBrokerRequest) result {
	resp := body.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	res := result{response: resp}
	if !c.onCluster(rq, opAlter) {
		err := plain(kerr.ClusterAuthorizationFailed)
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return res
	}
	b := c.img.Broker(body.BrokerID)
	if b == nil {
		err := fail(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", body.BrokerID)
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return res
	}
	res.records = append(c.removeFromISRs(removal{broker: b.ID}), &metarec.UnregisterBroker{BrokerID: b.ID, BrokerEpoch: b.Epoch})
	return res
}

// registerController serves ControllerRegistration.
func (c *core) registerController(rq *Request, body *kmsg.ControllerRegistrationRequest) result {
	resp := body.ResponseKind().(*kmsg.ControllerRegistrationResponse)
	res := result{response: resp, atomic: true}
	refuse := func(err *apiError) result {
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return res
	}
	r := &metarec.RegisterController{ControllerID: body.ControllerID, IncarnationID: body.IncarnationID, ZkMigrationReady: body.ZkMigrationReady}
	for _, f := range body.Features {
		r.Features = append(r.Features, metarec.FeatureRange{Name: f.Name, MinSupportedVersion: f.MinSupportedVersion, MaxSupportedVersion: f.MaxSupportedVersion})
	}
	for _, l := range body.Listeners {
		r.EndPoints = append(r.EndPoints, metarec.Endpoint{Name: l.Name, Host: l.Host, Port: l.Port, SecurityProtocol: l.SecurityProtocol})
	}
	switch {
	case !c.onCluster(rq, opClusterAction):
		return refuse(plain(kerr.ClusterAuthorizationFailed))
	case c.img.MetadataVersion() < feature.ControllerRegistration:
		return refuse(fail(kerr.UnsupportedVersion, "The current MetadataVersion is too old to support controller registrations."))
	case len(r.EndPoints) == 0:
		return refuse(fail(kerr.InvalidRequest, "No listeners found for controller %d", body.ControllerID))
	}
	if err := c.checkSupportedFeatures(r.Features); err != nil {
		return refuse(err)
	}
	res.records = []metarec.Record{r}
	return res
}

// unregisterController serves UnregisterController (KIP-1312).
func (c *core) unregisterController(rq *Request, body *kmsg.UnregisterControllerRequest) result {
	resp := body.ResponseKind().(*kmsg.UnregisterControllerResponse)
	res := result{response: resp, atomic: true}
	var err *apiError
	switch {
	case !c.onCluster(rq, opAlter):
		err = plain(kerr.ClusterAuthorizationFailed)
	case c.img.MetadataVersion() < feature.ControllerUnregistering:
		err = fail(kerr.UnsupportedVersion, "metadata.version %s does not have controller unregistration.", feature.MetadataName(c.img.MetadataVersion()))
	case c.img.Controller(body.ControllerID) == nil:
		err = fail(kerr.ControllerIDNotRegistered, "Controller ID %d is not currently registered.", body.ControllerID)
	default:
		res.records = []metarec.Record{&metarec.UnregisterController{ControllerID: body.ControllerID}}
	}
	resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
	return res
}

type brokerState int

const (
	stateFenced brokerState = iota
	stateUnfenced
	stateControlledShutdown
	stateShutdownNow
)

func stateOf(b *image.Broker) brokerState {
	switch {
	case b.Fenced:
		return stateFenced
	case b.ShuttingDown:
		return stateControlledShutdown
	}
	return stateUnfenced
}

// checkEpoch refuses requests of a broker's earlier incarnation.
func (c *core) checkEpoch(id int32, epoch int64) (*image.Broker, *apiError) {
	b := c.img.Broker(id)
	if b == nil {
		return nil, fail(kerr.StaleBrokerEpoch, "No broker registration found for broker id %d", id)
	}
	if b.Epoch != epoch {
		return nil, fail(kerr.StaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return b, nil
}

// heartbeat serves BrokerHeartbeat: the broker's next state, and the records that bring it there.
func (c *core) heartbeat(rq *Request, body *kmsg.BrokerHeartbeatRequest, now time.Time) result {
	resp := body.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	res := result{response: resp}
	if !c.onCluster(rq, opClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	}
	b, err := c.checkEpoch(body.BrokerID, body.BrokerEpoch)
	if err != nil {
		resp.ErrorCode = err.code()
		return res
	}
	s := c.touch(b, body.CurrentMetadataOffset, now)
	next := c.nextState(b, s, body)
	switch {
	case next == stateShutdownNow:
		// It says that it goes; do not make its next incarnation wait for this session to end.
		delete(c.sessions, b.ID)
		fallthrough
	case next == stateFenced:
		if !b.Fenced {
			res.records = c.fence(b)
		}
	case next == stateUnfenced && b.Fenced:
		res.records = c.unfence(b)
	case next == stateControlledShutdown && !b.ShuttingDown:
		res.records = c.controlledShutdown(b)
		res.appended = func(last int64) { s.shutdownOffset = last }
	}
	res.records = append(res.records, c.directoryChanges(b, body)...)
	resp.IsCaughtUp = body.CurrentMetadataOffset >= b.RegistrationOffset
	resp.IsFenced = next == stateFenced || next == stateShutdownNow
	resp.ShouldShutdown = next == stateShutdownNow
	return res
}

func (c *core) touch(b *image.Broker, metadataOffset int64, now time.Time) *session {
	s := c.sessions[b.ID]
	if s == nil || s.epoch != b.Epoch {
		s = &session{epoch: b.Epoch, shutdownOffset: c.shutdownOffset(b)}
		c.sessions[b.ID] = s
	}
	if now.After(s.contact) {
		s.contact = now
	}
	s.metadataOffset = max(s.metadataOffset, metadataOffset)
	return s
}

func (c *core) nextState(b *image.Broker, s *session, body *kmsg.BrokerHeartbeatRequest) brokerState {
	switch stateOf(b) {
	case stateFenced:
		switch {
		case body.WantShutdown:
			return stateShutdownNow
		case !body.WantFence && body.CurrentMetadataOffset >= b.RegistrationOffset:
			return stateUnfenced
		}
		return stateFenced
	case stateUnfenced:
		switch {
		case body.WantFence && body.WantShutdown:
			return stateShutdownNow
		case body.WantFence:
			return stateFenced
		case body.WantShutdown && c.leads(b.ID):
			return stateControlledShutdown
		case body.WantShutdown:
			return stateShutdownNow
		}
		return stateUnfenced
	}
	if c.leads(b.ID) || s.shutdownOffset > c.lowestActiveOffset() {
		return stateControlledShutdown
	}
	return stateShutdownNow
}

func (c *core) leads(id int32) bool {
	for t := range c.img.Topics() {
		if slices.ContainsFunc(t.Partitions, func(p *image.Partition) bool { return p.Leader == id }) {
			return true
		}
	}
	return false
}

// lowestActiveOffset is how far the slowest active broker has read.
func (c *core) lowestActiveOffset() int64 {
	lowest := int64(math.MaxInt64)
	for _, b := range c.img.Brokers() {
		if !b.Active() {
			continue
		}
		if s := c.sessions[b.ID]; s != nil {
			lowest = min(lowest, s.metadataOffset)
		}
	}
	return lowest
}

func (c *core) fence(b *image.Broker) []metarec.Record {
	return append(c.removeFromISRs(removal{broker: b.ID}),
		&metarec.BrokerRegistrationChange{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: 1})
}

func (c *core) unfence(b *image.Broker) []metarec.Record {
	return append([]metarec.Record{&metarec.BrokerRegistrationChange{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: -1}},
		c.electLeaderless(b.ID)...)
}

func (c *core) controlledShutdown(b *image.Broker) []metarec.Record {
	return append([]metarec.Record{&metarec.BrokerRegistrationChange{BrokerID: b.ID, BrokerEpoch: b.Epoch, InControlledShutdown: 1}},
		c.removeFromISRs(removal{broker: b.ID})...)
}

// expired gives the brokers whose sessions ended by now, the longest silent first.
func (c *core) expired(now time.Time) []*image.Broker {
	var out []*image.Broker
	for id, s := range c.sessions {
		if now.Before(s.contact.Add(c.opt.SessionTimeout)) {
			continue
		}
		if b := c.img.Broker(id); b != nil && b.Epoch == s.epoch && !b.Fenced {
			out = append(out, b)
		} else {
			delete(c.sessions, id)
		}
	}
	slices.SortFunc(out, func(a, b *image.Broker) int { return c.sessions[a.ID].contact.Compare(c.sessions[b.ID].contact) })
	return out
}

// nextExpiry is when the next session ends; zero for never.
func (c *core) nextExpiry() time.Time {
	var next time.Time
	for _, s := range c.sessions {
		if at := s.contact.Add(c.opt.SessionTimeout); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// excuse gives all sessions the time that this process was not running: heartbeats may be
// waiting unread.
func (c *core) excuse(late time.Duration) {
	for _, s := range c.sessions {
		s.contact = s.contact.Add(late)
	}
}
