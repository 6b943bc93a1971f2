package controller

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/metarec"
)

// producerIDBlock is how many ids a broker gets at a time.
const producerIDBlock = 1000

// allocateProducerIDs serves AllocateProducerIds (metadata-records.md §10).
func (c *core) allocateProducerIDs(rq *Request, body *kmsg.AllocateProducerIDsRequest) result {
	resp := body.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	res := result{response: resp, atomic: true}
	if !c.onCluster(rq, opClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	}
	if _, err := c.checkEpoch(body.BrokerID, body.BrokerEpoch); err != nil {
		resp.ErrorCode = err.code()
		return res
	}
	first := c.img.NextProducerID()
	if first > math.MaxInt64-producerIDBlock {
		resp.ErrorCode = kerr.UnknownServerError.Code
		return res
	}
	resp.ProducerIDStart, resp.ProducerIDLen = first, producerIDBlock
	res.records = []metarec.Record{&metarec.ProducerIDs{BrokerID: body.BrokerID, BrokerEpoch: body.BrokerEpoch, NextProducerID: first + producerIDBlock}}
	return res
}
