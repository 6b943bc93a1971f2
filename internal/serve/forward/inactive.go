package forward

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusedAsInactive reports an answer in which a controller that does not lead refused
// everything: the broker is to ask the new leader, the client never to see it.
func refusedAsInactive(resp kmsg.Response) bool {
	code := kerr.NotController.Code
	switch r := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == code
	case *kmsg.DeleteTopicsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == code
	case *kmsg.CreatePartitionsResponse:
		return len(r.Topics) > 0 && r.Topics[0].ErrorCode == code
	case *kmsg.IncrementalAlterConfigsResponse:
		return len(r.Resources) > 0 && r.Resources[0].ErrorCode == code
	case *kmsg.AlterConfigsResponse:
		return len(r.Resources) > 0 && r.Resources[0].ErrorCode == code
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode == code
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode == code
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode == code
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode == code
	case *kmsg.UnregisterBrokerResponse:
		return r.ErrorCode == code
	}
	return false
}
