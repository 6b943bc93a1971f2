package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"runnel/internal/kit/vfs"
)

// Suffix is what a checkpoint is called while it is being written.
const Suffix = ".tmp"

// Replace writes the file so that a crash leaves the old content or the new, and the new
// once Replace returned.
func Replace(f vfs.FS, name string, data []byte) error {
	tmp := name + Suffix
	if err := Write(f, tmp, data, true); err != nil {
		f.Remove(tmp) // a full disk should not keep what nobody reads
		return err
	}
	if err := f.Rename(tmp, name); err != nil {
		return err
	}
	return f.SyncDir(path.Dir(name))
}

// Write writes the file in place; sync makes its content durable, its name is not.
func Write(f vfs.FS, name string, data []byte, sync bool) error {
	h, err := f.OpenFile(name, vfs.ReadWrite|vfs.Create|vfs.Trunc)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = h.WriteAt(data, 0)
	}
	if err == nil && sync {
		err = h.Sync()
	}
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	return err
}

// ErrFormat says that a file does not hold what it should.
var ErrFormat = errors.New("malformed checkpoint file")

// ReadLines reads a checkpoint of version 0 and gives its entries. A missing or empty
// file has none.
func ReadLines(f vfs.FS, name string) ([]string, error) {
	data, err := vfs.ReadFile(f, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lines, err := ParseLines(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return lines, nil
}

// ParseLines takes the entries out of a checkpoint's content.
func ParseLines(data []byte) ([]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if v := strings.TrimSpace(lines[0]); v != "0" {
		return nil, fmt.Errorf("%w: version %.20q, want 0", ErrFormat, v)
	}
	if len(lines) < 2 {
		return nil, fmt.Errorf("%w: the number of entries is missing", ErrFormat)
	}
	n, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || n != len(lines)-2 {
		return nil, fmt.Errorf("%w: %.20q entries announced, %d found", ErrFormat, lines[1], len(lines)-2)
	}
	return lines[2:], nil
}

// FormatLines is the content of a checkpoint of version 0.
func FormatLines(entries []string) []byte {
	var b strings.Builder
	b.WriteString("0\n")
	b.WriteString(strconv.Itoa(len(entries)))
	b.WriteByte('\n')
	for _, e := range entries {
		b.WriteString(e)
		b.WriteByte('\n')
	}
	return []byte(b.String())
}
