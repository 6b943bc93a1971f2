package config

// LoneNode is the configuration of a node that is a cluster by itself: internal topics
// with one replica, no wait for more members in a new group. Its addresses are HOST:PORT;
// a port of 0 is chosen by the system.
func LoneNode(dir, broker, controller string) *Properties {
	p := &Properties{}
	for _, kv := range [][2]string{
		{"process.roles", "broker,controller"},
		{"node.id", "1"},
		{"listeners", "PLAINTEXT://" + broker + ",CONTROLLER://" + controller},
		{"controller.listener.names", "CONTROLLER"},
		{"controller.quorum.voters", "1@" + controller},
		{"log.dirs", dir},
		{"offsets.topic.replication.factor", "1"},
		{"transaction.state.log.replication.factor", "1"},
		{"transaction.state.log.min.isr", "1"},
		{"share.coordinator.state.topic.replication.factor", "1"},
		{"share.coordinator.state.topic.min.isr", "1"},
		{"group.initial.rebalance.delay.ms", "0"},
	} {
		p.Set(kv[0], kv[1], "built-in default")
	}
	return p
}
