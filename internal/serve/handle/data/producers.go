package data

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/repl/partition"
)

func fillProducers(out *kmsg.DescribeProducersResponseTopicPartition, replica *partition.Partition) error {
	entries, err := replica.Producers()
	if err != nil {
		return err
	}
	for _, e := range entries {
		ap := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		ap.ProducerID = e.ProducerID
		ap.ProducerEpoch = int32(e.Epoch)
		ap.LastSequence = e.LastSequence
		ap.LastTimestamp = e.LastTimestamp
		ap.CoordinatorEpoch = e.CoordinatorEpoch
		ap.CurrentTxnStartOffset = e.TxnFirstOffset
		out.ActiveProducers = append(out.ActiveProducers, ap)
	}
	return nil
}
