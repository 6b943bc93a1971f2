// Package compare holds Runnel's answers against those of Apache Kafka 4.4.
//
// A scene (scenes_*_test.go) is a sequence of raw requests with topics and groups of its own. Played against a broker it
// gives a list of steps: the decoded answer of each request with what a broker chooses freely (ids, times, addresses)
// replaced by names. testdata/kafka.json.gz is what Apache Kafka answered; TestRecording plays the scenes against an
// embedded node and compares with it, needing neither Java nor a network, in seconds. `make compare` (build tag compare)
// plays them against a running Apache Kafka as well, so that a recording that is out of date is noticed, and with
// RUNNEL_COMPARE_RECORD=1 writes it anew.
//
// Owns: scenes, normalization, the list of differences that are meant (meant_test.go). Does not own: starting Apache
// Kafka (test/oracle).
//
// To add a case, add a scene, or a step to one; record; look at the difference of the recording. Differences that are
// meant go into meant_test.go with the reason.
//
// Start reading at script_test.go.
package compare
