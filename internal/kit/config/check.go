package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Check is a rule beyond the type. Rule is its text form for documentation.
type Check interface {
	Validate(text string) error
	Rule() string
}

type bounds struct {
	low, high int64
	open      bool // no upper bound
}

// AtLeast demands a number of at least n; Between one in [low, high].
func AtLeast(n int64) Check         { return bounds{low: n, open: true} }
func Between(low, high int64) Check { return bounds{low: low, high: high} }

func (c bounds) Rule() string {
	if c.open {
		return fmt.Sprintf("at least %d", c.low)
	}
	return fmt.Sprintf("between %d and %d", c.low, c.high)
}

func (c bounds) Validate(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(text, 64)
		if ferr != nil {
			return err
		}
		n = int64(f)
	}
	if n < c.low || !c.open && n > c.high {
		return fmt.Errorf("must be %s", c.Rule())
	}
	return nil
}

type floatBounds struct{ low, high float64 }

// BetweenFloat demands a number in [low, high].
func BetweenFloat(low, high float64) Check { return floatBounds{low, high} }

func (c floatBounds) Rule() string { return fmt.Sprintf("between %g and %g", c.low, c.high) }
func (c floatBounds) Validate(text string) error {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || !(f >= c.low && f <= c.high) {
		return fmt.Errorf("must be %s", c.Rule())
	}
	return nil
}

type oneOf struct {
	values []string
	fold   bool
}

// OneOf demands one of the values; OneOfFold ignores case.
func OneOf(values ...string) Check     { return oneOf{values, false} }
func OneOfFold(values ...string) Check { return oneOf{values, true} }

func (c oneOf) Rule() string { return "one of " + strings.Join(c.values, ", ") }
func (c oneOf) Validate(text string) error {
	for _, v := range c.values {
		if v == text || c.fold && strings.EqualFold(v, text) {
			return nil
		}
	}
	return fmt.Errorf("must be %s", c.Rule())
}

// ListOf demands a list of known elements, none twice.
type ListOf struct {
	Values   []string
	NotEmpty bool
	Must     string // an element that has to be there
}

func (c ListOf) Rule() string {
	s := "a list of " + strings.Join(c.Values, ", ") + ", none twice"
	if c.NotEmpty {
		s += ", not empty"
	}
	if c.Must != "" {
		s += ", with " + c.Must
	}
	return s
}

func (c ListOf) Validate(text string) error {
	items := SplitList(text)
	if c.NotEmpty && len(items) == 0 || c.Must != "" && !slices.Contains(items, c.Must) {
		return fmt.Errorf("must be %s", c.Rule())
	}
	for i, item := range items {
		if !slices.Contains(c.Values, item) || slices.Contains(items[:i], item) {
			return fmt.Errorf("must be %s", c.Rule())
		}
	}
	return nil
}

// Distinct demands a list without repeated elements.
type Distinct struct{ NotEmpty bool }

func (c Distinct) Rule() string {
	if c.NotEmpty {
		return "a list without repeated elements, not empty"
	}
	return "a list without repeated elements"
}

func (c Distinct) Validate(text string) error {
	items := SplitList(text)
	if c.NotEmpty && len(items) == 0 {
		return fmt.Errorf("must be %s", c.Rule())
	}
	for i, item := range items {
		if slices.Contains(items[:i], item) {
			return fmt.Errorf("must be %s; %q is there twice", c.Rule(), item)
		}
	}
	return nil
}

// NotBlank demands some text.
type NotBlank struct{}

func (NotBlank) Rule() string { return "not empty" }
func (NotBlank) Validate(text string) error {
	if text == "" {
		return fmt.Errorf("must not be empty")
	}
	return nil
}

// GzipLevel demands -1 (the codec's default) or 1 to 9.
type GzipLevel struct{}

func (GzipLevel) Rule() string { return "-1 or between 1 and 9" }
func (c GzipLevel) Validate(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n != -1 && (n < 1 || n > 9) {
		return fmt.Errorf("must be %s", c.Rule())
	}
	return nil
}

// ThrottledReplicas demands "*", "none" or a list of PARTITION:BROKER.
type ThrottledReplicas struct{}

func (ThrottledReplicas) Rule() string { return "*, none, or a list of PARTITION:BROKER" }
func (c ThrottledReplicas) Validate(text string) error {
	if text == "*" || text == "none" {
		return nil
	}
	for _, item := range SplitList(text) {
		p, b, ok := strings.Cut(item, ":")
		_, perr := strconv.ParseUint(p, 10, 31)
		_, berr := strconv.ParseUint(b, 10, 31)
		if !ok || perr != nil || berr != nil {
			return fmt.Errorf("must be %s; %q is not", c.Rule(), item)
		}
	}
	return nil
}

// HostPorts demands a list of HOST:PORT.
type HostPorts struct{}

func (HostPorts) Rule() string { return "a list of HOST:PORT" }
func (c HostPorts) Validate(text string) error {
	for _, item := range SplitList(text) {
		if _, _, err := SplitHostPort(item); err != nil {
			return fmt.Errorf("must be %s: %v", c.Rule(), err)
		}
	}
	return nil
}

// Voters demands a list of ID@HOST:PORT.
type Voters struct{}

func (Voters) Rule() string { return "a list of ID@HOST:PORT" }
func (c Voters) Validate(text string) error {
	seen := map[string]bool{}
	for _, item := range SplitList(text) {
		id, addr, ok := strings.Cut(item, "@")
		_, err := strconv.ParseUint(id, 10, 31)
		if !ok || err != nil {
			return fmt.Errorf("must be %s; %q is not", c.Rule(), item)
		}
		if _, _, err := SplitHostPort(addr); err != nil {
			return fmt.Errorf("must be %s: %v", c.Rule(), err)
		}
		if seen[id] {
			return fmt.Errorf("must be %s; id %s is there twice", c.Rule(), id)
		}
		seen[id] = true
	}
	return nil
}

// OffsetReset demands earliest, latest or by_duration:ISO-8601.
type OffsetReset struct{}

func (OffsetReset) Rule() string { return "latest, earliest or by_duration:P..." }
func (c OffsetReset) Validate(text string) error {
	if text == "latest" || text == "earliest" || strings.HasPrefix(text, "by_duration:P") {
		return nil
	}
	return fmt.Errorf("must be %s", c.Rule())
}

// SplitHostPort splits HOST:PORT; the port must be 0 to 65535.
func SplitHostPort(s string) (string, int, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not HOST:PORT", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has no port between 0 and 65535", s)
	}
	return host, int(n), nil
}
