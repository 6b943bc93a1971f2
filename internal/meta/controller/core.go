package controller

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// core is all that decisions read: the image after everything that was appended, the
// offset the next record gets, and the brokers' sessions.
type core struct {
	opt      Options
	img      *image.Image
	next     int64
	sessions map[int32]*session
	// collisions holds, by name with dots made underscores, the topics that have either.
	collisions map[string][]string
}

// result is a decision. Records of an atomic one stand in one batch or not at all.
type result struct {
	response kmsg.Response
	records  []metarec.Record
	atomic   bool
	err      error
	// appended is called with the offset of the last record, or of the last one
	// before when there are none.
	appended func(lastOffset int64)
}

func newCore(opt Options, img *image.Image, next int64, now time.Time) *core {
	c := &core{opt: opt, img: img, next: next, sessions: map[int32]*session{}, collisions: map[string][]string{}}
	for t := range img.Topics() {
		c.addCollision(t.Name)
	}
	// A new controller cannot know when brokers were heard last; each gets a whole session.
	for _, b := range img.Brokers() {
		if !b.Fenced {
			c.sessions[b.ID] = &session{epoch: b.Epoch, contact: now, shutdownOffset: c.shutdownOffset(b)}
		}
	}
	return c
}

func (c *core) shutdownOffset(b *image.Broker) int64 {
	if b.ShuttingDown {
		return c.next - 1
	}
	return -1
}

// apply replays records that were appended.
func (c *core) apply(records []metarec.Record, lastOffset int64, epoch int32) error {
	img, delta, err := c.img.Apply(records, lastOffset, epoch)
	if err != nil {
		return err
	}
	c.img, c.next = img, lastOffset+1
	for _, d := range delta.Topics {
		switch {
		case d.Created():
			c.addCollision(d.New.Name)
		case d.Deleted():
			c.dropCollision(d.Old.Name)
		}
	}
	for id, d := range delta.Brokers {
		if d.New == nil || d.Old != nil && d.Old.Epoch != d.New.Epoch {
			delete(c.sessions, id)
		}
	}
	return nil
}

// decide dispatches a request to its concern. now is when the request arrived.
func (c *core) decide(rq *Request, now time.Time) result {
	switch body := rq.Body.(type) {
	case *kmsg.CreateTopicsRequest:
		return c.createTopics(rq, body)
	case *kmsg.DeleteTopicsRequest:
		return c.deleteTopics(rq, body)
	case *kmsg.CreatePartitionsRequest:
		return c.createPartitions(rq, body)
	case *kmsg.IncrementalAlterConfigsRequest:
		return c.incrementalAlterConfigs(rq, body)
	case *kmsg.AlterConfigsRequest:
		return c.alterConfigs(rq, body)
	case *kmsg.ElectLeadersRequest:
		return c.electLeaders(rq, body)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return c.alterReassignments(rq, body)
	case *kmsg.ListPartitionReassignmentsRequest:
		return c.listReassignments(rq, body)
	case *kmsg.UpdateFeaturesRequest:
		return c.updateFeatures(rq, body)
	case *kmsg.UnregisterBrokerRequest:
		return c.unregisterBroker(rq, body)
	case *kmsg.UnregisterControllerRequest:
		return c.unregisterController(rq, body)
	case *kmsg.BrokerRegistrationRequest:
		return c.registerBroker(rq, body, now)
	case *kmsg.BrokerHeartbeatRequest:
		return c.heartbeat(rq, body, now)
	case *kmsg.ControllerRegistrationRequest:
		return c.registerController(rq, body)
	case *kmsg.AlterPartitionRequest:
		return c.alterPartition(rq, body)
	case *kmsg.AssignReplicasToDirsRequest:
		return c.assignReplicasToDirs(rq, body)
	case *kmsg.AllocateProducerIDsRequest:
		return c.allocateProducerIDs(rq, body)
	}
	return c.decideSecurity(rq)
}

func (c *core) decideSecurity(rq *Request) result {
	switch body := rq.Body.(type) {
	case *kmsg.CreateACLsRequest:
		return c.createACLs(rq, body)
	case *kmsg.DeleteACLsRequest:
		return c.deleteACLs(rq, body)
	case *kmsg.AlterClientQuotasRequest:
		return c.alterClientQuotas(rq, body)
	case *kmsg.AlterUserSCRAMCredentialsRequest:
		return c.alterScram(rq, body)
	}
	return result{err: fmt.Errorf("api key %d is not served by the controller: %w", rq.Body.Key(), kerr.UnsupportedVersion)}
}

// Serves reports whether Handle knows the api.
func Serves(key int16) bool {
	switch key {
	case 19, 20, 37, 44, 33, 43, 45, 46, 57, 64, 94, 62, 63, 70, 56, 73, 67, 30, 31, 49, 51:
		return true
	}
	return false
}

func (c *core) authorized(rq *Request, operation, resourceType int8, name string) bool {
	return c.opt.Authorize == nil || c.opt.Authorize(rq, operation, resourceType, name)
}

func (c *core) onCluster(rq *Request, operation int8) bool {
	return c.authorized(rq, operation, onCluster, clusterName)
}

// apiError is a Kafka error with the message that the response carries.
type apiError struct {
	kerr *kerr.Error
	text string
}

func (e *apiError) Error() string { return cmp.Or(e.text, e.kerr.Message) }
func (e *apiError) Unwrap() error { return e.kerr }

func fail(e *kerr.Error, format string, args ...any) *apiError {
	return &apiError{e, fmt.Sprintf(format, args...)}
}

// plain is an error with Kafka's stock message.
func plain(e *kerr.Error) *apiError {
	return &apiError{e, strings.TrimSuffix(e.Description, ".") + "."}
}

// bare is an error whose message Kafka leaves null.
func bare(e *kerr.Error) *apiError { return &apiError{kerr: e} }

// code and message give a response's error fields for an error, nil for none.
func (e *apiError) code() int16 {
	if e == nil {
		return 0
	}
	return e.kerr.Code
}

func (e *apiError) message() *string {
	if e == nil || e.text == "" {
		return nil
	}
	return &e.text
}

// asAPIError turns a validator's error into one for a response.
func asAPIError(err error, otherwise *kerr.Error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return &apiError{known, err.Error()}
	}
	return &apiError{otherwise, err.Error()}
}

var errTooManyRecords = fail(kerr.PolicyViolation, "Unable to perform excessively large batch operation.")

func (c *core) newUUID() ids.UUID {
	return ids.NewUUID(func(b []byte) {
		for len(b) > 0 {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], c.opt.Random())
			b = b[copy(b, word[:]):]
		}
	})
}

// topicValue is a topic's effective config: its own, else the brokers' cluster-wide
// dynamic default, else static.
func (c *core) topicValue(topic, name, static string) string {
	if v, ok := c.img.Config(image.TopicConfig, topic)[name]; ok {
		return v
	}
	if v, ok := c.img.Config(image.BrokerConfig, "")[name]; ok {
		return v
	}
	return static
}

const (
	minISRKey  = "min.insync.replicas"
	uncleanKey = "unclean.leader.election.enable"
)

func (c *core) minISR(topic string) int {
	n, err := strconv.Atoi(c.topicValue(topic, minISRKey, ""))
	if err != nil {
		return c.opt.MinISR
	}
	return n
}

func (c *core) uncleanElection(topic string) bool {
	return c.topicValue(topic, uncleanKey, strconv.FormatBool(c.opt.UncleanElection)) == "true"
}

func (c *core) active(id int32) bool {
	b := c.img.Broker(id)
	return b != nil && b.Active()
}

// acceptable reports whether a replica may lead: its broker is active and its directory online.
func (c *core) acceptable(p *image.Partition, id int32) bool {
	b := c.img.Broker(id)
	return b != nil && b.Active() && b.HasOnlineDir(directory(p, id))
}

func directory(p *image.Partition, id int32) ids.UUID {
	if at := slices.Index(p.Replicas, id); at >= 0 && at < len(p.Directories) {
		return p.Directories[at]
	}
	return ids.DirUnassigned
}

func without(s []int32, drop ...int32) []int32 {
	return slices.DeleteFunc(slices.Clone(s), func(id int32) bool { return slices.Contains(drop, id) })
}

func containsAll(s, of []int32) bool {
	for _, id := range of {
		if !slices.Contains(s, id) {
			return false
		}
	}
	return true
}
