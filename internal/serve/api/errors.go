package api

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Code gives the Kafka error code of an error: the one table at the protocol's edge.
// What is no Kafka error reads as a time-out if a deadline ended it, else as -1.
func Code(err error) int16 {
	if err == nil {
		return 0
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Code
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return kerr.RequestTimedOut.Code
	}
	return kerr.UnknownServerError.Code
}

// Message is the text for an answer's error message: what is known beyond the code, or
// nil.
func Message(err error) *string {
	if err == nil {
		return nil
	}
	text := err.Error()
	var k *kerr.Error
	if errors.As(err, &k) {
		if text == k.Error() {
			return nil
		}
		if suffix := ": " + k.Error(); len(text) > len(suffix) && text[len(text)-len(suffix):] == suffix {
			text = text[:len(text)-len(suffix)]
		}
	}
	return &text
}
