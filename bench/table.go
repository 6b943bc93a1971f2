package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// bar is what a row must meet: the ratio of Runnel to Kafka, or Runnel's own value.
type bar struct {
	limit    float64
	absolute bool // of Runnel's value, not of the ratio
	least    bool // at least, not at most
}

func atMost(ratio float64) *bar  { return &bar{limit: ratio} }
func atLeast(ratio float64) *bar { return &bar{limit: ratio, least: true} }
func below(value float64) *bar   { return &bar{limit: value, absolute: true} }

// row is one quantity, with what every server showed over the rounds.
type row struct {
	name, unit string
	bar        *bar
	values     map[string][]float64
}

// table keeps rows in the order of their first value.
type table struct{ rows []*row }

func (t *table) add(server, name, unit string, b *bar, value float64) {
	i := slices.IndexFunc(t.rows, func(r *row) bool { return r.name == name && r.unit == unit })
	if i < 0 {
		i = len(t.rows)
		t.rows = append(t.rows, &row{name: name, unit: unit, bar: b, values: map[string][]float64{}})
	}
	t.rows[i].values[server] = append(t.rows[i].values[server], value)
}

// value is the middle of the rounds, NaN if there are none.
func (r *row) value(server string) float64 {
	v := slices.Sorted(slices.Values(r.values[server]))
	if len(v) == 0 {
		return math.NaN()
	}
	return v[len(v)/2]
}

// verdict compares with the bar: "", "met" or "missed".
func (r *row) verdict() string {
	if r.bar == nil {
		return ""
	}
	v := r.value("runnel")
	if !r.bar.absolute {
		v /= r.value("kafka")
	}
	switch {
	case math.IsNaN(v):
		return ""
	case r.bar.least == (v >= r.bar.limit), v == r.bar.limit:
		return "met"
	}
	return "missed"
}

func (b *bar) String() string {
	if b == nil {
		return ""
	}
	word := "≤"
	if b.least {
		word = "≥"
	}
	if b.absolute {
		return fmt.Sprintf("%s %s", word, figure(b.limit))
	}
	if b.limit < 0.5 {
		return fmt.Sprintf("%s 1/%.3g", word, 1/b.limit)
	}
	return fmt.Sprintf("%s %.3g", word, b.limit)
}

func (t *table) markdown(machine string) string {
	rows := [][]string{{"measured", "unit", "Kafka 4.4", "Runnel", "Runnel / Kafka", "bar", "", "bare machine"}}
	for _, r := range t.rows {
		ratio := r.value("runnel") / r.value("kafka")
		rows = append(rows, []string{r.name, r.unit, figure(r.value("kafka")), figure(r.value("runnel")), figure(ratio), r.bar.String(), r.verdict(), figure(r.value("bare"))})
	}
	widths := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n", machine)
	for n, r := range rows {
		for i, c := range r {
			fmt.Fprintf(&out, "| %s%s ", c, strings.Repeat(" ", widths[i]-len([]rune(c))))
		}
		out.WriteString("|\n")
		if n == 0 {
			for _, w := range widths {
				fmt.Fprintf(&out, "|%s", strings.Repeat("-", w+2))
			}
			out.WriteString("|\n")
		}
	}
	return out.String()
}

// figure prints three digits that matter.
func figure(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), v)
}
