package config

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/magiconair/properties"
)

// Properties are the key-value pairs of a file or of --set flags, each with the place it
// was read from.
type Properties struct {
	Values map[string]string
	from   map[string]string
}

// From says where a key was set: "FILE:LINE" or "--set".
func (p *Properties) From(key string) string { return p.from[key] }

// ParseProperties reads Java's properties format. A later line of one key wins.
func ParseProperties(name string, text []byte) (*Properties, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	parsed, err := loader.LoadBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Properties{Values: parsed.Map(), from: map[string]string{}}
	lines := keyLines(text)
	for k := range p.Values {
		p.from[k] = name
		if n := lines[k]; n > 0 {
			p.from[k] = fmt.Sprintf("%s:%d", name, n)
		}
	}
	return p, nil
}

// keyLines finds the last line that sets each plainly written key.
func keyLines(text []byte) map[string]int {
	out := map[string]int{}
	sc := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimLeft(sc.Text(), " \t\f")
		if i := strings.IndexAny(line, "=: \t"); i > 0 && line[0] != '#' && line[0] != '!' {
			out[line[:i]] = n
		}
	}
	return out
}

// Set overrides one key, as --set KEY=VALUE does.
func (p *Properties) Set(key, value, source string) {
	if p.Values == nil {
		p.Values, p.from = map[string]string{}, map[string]string{}
	}
	p.Values[key], p.from[key] = value, source
}

// Check validates every pair against the key table. With relaxed, unknown keys are
// returned as warnings instead of refused. notes lists known keys that have no effect.
func (p *Properties) Check(relaxed bool) (warnings, notes []string, err error) {
	names := make([]string, 0, len(p.Values))
	for n := range p.Values {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		if n == "cluster.id" {
			continue // not a broker key: the identity for formatting an empty directory
		}
		if uerr := UnknownBroker(n); uerr != nil {
			if e, ok := uerr.(*Error); ok {
				e.Source = p.From(n)
			}
			if !relaxed {
				return warnings, notes, uerr
			}
			warnings = append(warnings, uerr.Error())
			continue
		}
		k := BrokerKey(n)
		if k == nil {
			continue
		}
		if verr := k.Validate(p.Values[n]); verr != nil {
			if e, ok := verr.(*Error); ok {
				e.Source = p.From(n)
			}
			return warnings, notes, verr
		}
		if !k.Acts() && k.Validate(p.Values[n]) == nil && strings.TrimSpace(p.Values[n]) != k.Default {
			notes = append(notes, fmt.Sprintf("%s: %s is known but has no effect in this version", p.From(n), n))
		}
	}
	return warnings, notes, nil
}
