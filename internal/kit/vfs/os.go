package vfs

import (
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"
)

// OS is the operating system's file system.
type OS struct{}

type osFile struct{ f *os.File }

func (OS) OpenFile(name string, flags int) (File, error) {
	f, err := os.OpenFile(filepath.FromSlash(name), flags, 0o644)
	if err != nil {
		return nil, err
	}
	return &osFile{f}, nil
}

func (OS) MkdirAll(dir string) error { return os.MkdirAll(filepath.FromSlash(dir), 0o755) }
func (OS) Rename(a, b string) error {
	return os.Rename(filepath.FromSlash(a), filepath.FromSlash(b))
}
func (OS) Remove(name string) error    { return os.Remove(filepath.FromSlash(name)) }
func (OS) RemoveAll(name string) error { return os.RemoveAll(filepath.FromSlash(name)) }
func (OS) SetModTime(name string, t time.Time) error {
	return os.Chtimes(filepath.FromSlash(name), t, t)
}

func (OS) ReadDir(dir string) ([]Info, error) {
	f, err := os.Open(filepath.FromSlash(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed between listing and stat
		}
		if err != nil {
			return nil, err
		}
		out = append(out, infoOf(fi))
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (OS) Stat(name string) (Info, error) {
	fi, err := os.Stat(filepath.FromSlash(name))
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi os.FileInfo) Info {
	return Info{Name: fi.Name(), Size: fi.Size(), ModTime: fi.ModTime(), IsDir: fi.IsDir()}
}

func (OS) SyncDir(dir string) error { return syncDir(filepath.FromSlash(dir)) }

func (OS) SyncAll(name string) (bool, error) { return syncAll(filepath.FromSlash(name)) }

func (OS) Lock(name string) (io.Closer, error) { return lockFile(filepath.FromSlash(name)) }

func (OS) Space(name string) (Space, error) { return spaceOf(filepath.FromSlash(name)) }

func (o *osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o *osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o *osFile) Sync() error                              { return syncFile(o.f) }
func (o *osFile) OSFile() *os.File                         { return o.f }

func (o *osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
