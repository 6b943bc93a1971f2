package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is a value's type; the numbers are DescribeConfigs' ConfigType.
type Type int8

const (
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

var typeNames = [...]string{1: "boolean", 2: "string", 3: "int", 4: "short", 5: "long", 6: "double", 7: "list", 8: "class", 9: "password"}

func (t Type) String() string { return typeNames[t] }

// Dynamic says whether and where a value may change while the broker runs.
type Dynamic int8

const (
	ReadOnly    Dynamic = iota // a restart is needed
	ClusterWide                // as cluster default and per broker
	PerBroker                  // only for one broker
	PerResource                // a topic's, group's or subscription's own key
)

var dynamicNames = [...]string{"read-only", "cluster-wide", "per-broker", "per-resource"}

func (d Dynamic) String() string { return dynamicNames[d] }

// Defaults that are no text: no value at all, and a value that must be given.
const (
	Null     = "\x00null"
	Required = "\x00required"
)

// Key is one configuration key and its rules.
type Key struct {
	Name     string
	Type     Type
	Default  string // text form; Null or Required
	Check    Check  // nil: any value of the type
	Dynamic  Dynamic
	Area     string   // heading in the documentation
	Synonyms []string // broker keys that give the default, in lookup order
	Internal bool     // not shown to clients
}

// HasDefault reports a key with a default value; Null counts as none.
func (k *Key) HasDefault() bool { return k.Default != Null && k.Default != Required }

// Doc is what the key does in Runnel; empty if we know it but do not act on it.
func (k *Key) Doc() string { return acts[k.Name] }

// Acts reports keys that change what Runnel does.
func (k *Key) Acts() bool { return acts[k.Name] != "" }

// Error refuses one value. Its text names key, value and rule.
type Error struct {
	Key, Value, Rule string
	Source           string // "FILE:LINE", "--set", or empty
	Nearest          string // a known key of a similar name
}

func (e *Error) Error() string {
	var s strings.Builder
	if e.Source != "" {
		s.WriteString(e.Source + ": ")
	}
	switch {
	case e.Rule == "":
		fmt.Fprintf(&s, "unknown configuration key %q", e.Key)
	case e.Value == "":
		fmt.Fprintf(&s, "%s: %s", e.Key, e.Rule)
	default:
		fmt.Fprintf(&s, "%s=%s: %s", e.Key, e.Value, e.Rule)
	}
	if e.Nearest != "" {
		fmt.Fprintf(&s, "; did you mean %q?", e.Nearest)
	}
	return s.String()
}

// Validate checks one text value against the key's type and rule.
func (k *Key) Validate(text string) error {
	text = strings.TrimSpace(text)
	if err := k.Type.parse(text); err != nil {
		return &Error{Key: k.Name, Value: k.show(text), Rule: err.Error()}
	}
	if k.Check == nil {
		return nil
	}
	if err := k.Check.Validate(text); err != nil {
		return &Error{Key: k.Name, Value: k.show(text), Rule: err.Error()}
	}
	return nil
}

func (k *Key) show(text string) string {
	if k.Type == Password {
		return "[hidden]"
	}
	if text == "" {
		return `""`
	}
	return text
}

func (t Type) parse(text string) error {
	var err error
	switch t {
	case Boolean:
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return fmt.Errorf("must be true or false")
		}
	case Short:
		_, err = strconv.ParseInt(text, 10, 16)
	case Int:
		_, err = strconv.ParseInt(text, 10, 32)
	case Long:
		_, err = strconv.ParseInt(text, 10, 64)
	case Double:
		_, err = strconv.ParseFloat(text, 64)
	}
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "out of range") {
		return fmt.Errorf("is out of range for type %s", t)
	}
	return fmt.Errorf("must be of type %s", t)
}

// SplitList splits a list value: commas, blanks around them removed, empty is no element.
func SplitList(text string) []string {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}
