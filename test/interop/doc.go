// Package interop lets real clients do with Runnel what their users do with Apache Kafka (build tag interop, `make
// interop`; RUNNEL_INTEROP=quick leaves the long parts out): Kafka's own tools and Java client, librdkafka, kafka-python,
// aiokafka, kafkajs, @platformatic/kafka and franz-go. It also lets Apache Kafka open what Runnel wrote.
//
// Owns: what is fetched for it (a virtual environment and node modules, in the user's cache directory) and the client
// programs in testdata. Does not own: starting Apache Kafka and Runnel (test/oracle).
//
// Start reading at interop_test.go; each client's program in testdata makes the same journey.
package interop
