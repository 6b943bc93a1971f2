package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table is a result for people: columns two blanks apart, numbers to the right.
type table struct {
	heads []string
	rows  [][]string
	right []bool
}

func newTable(heads ...string) *table {
	t := &table{heads: heads, right: make([]bool, len(heads))}
	return t
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch c := c.(type) {
		case string:
			row[i] = c
			if c == "" {
				row[i] = "-"
			}
		case []int32:
			row[i] = joinInts(c)
		default:
			row[i] = fmt.Sprint(c)
			t.right[i] = true
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) write(w io.Writer) error {
	width := make([]int, len(t.heads))
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range append([][]string{t.heads}, t.rows...) {
		line := ""
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if t.right[i] {
				line += pad + c + "  "
			} else {
				line += c + pad + "  "
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func joinInts(v []int32) string {
	if len(v) == 0 {
		return "-"
	}
	s := make([]string, len(v))
	for i, n := range v {
		s[i] = strconv.Itoa(int(n))
	}
	return strings.Join(s, ",")
}

// show prints a result: v as one JSON document, or whatever text draws.
func (e *Env) show(v any, text func() error) error {
	if e.output != "json" {
		return text()
	}
	enc := json.NewEncoder(e.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// done says that something was changed.
func (e *Env) done(v any, format string, args ...any) error {
	return e.show(v, func() error {
		_, err := fmt.Fprintf(e.Stdout, format+"\n", args...)
		return err
	})
}

func orDash(n int64) any {
	if n < 0 {
		return "-"
	}
	return n
}

// bytesText gives a size as people read it.
func bytesText(n int64) string {
	if n < 0 {
		return "-"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
