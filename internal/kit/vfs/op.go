package vfs

// OpKind names one operation of FS or File that can change a disk, or fail.
type OpKind uint8

const (
	OpOpen OpKind = iota
	OpCreate
	OpRead
	OpWrite
	OpTruncate
	OpSync
	OpRename
	OpRemove
	OpMkdir
	OpReadDir
	OpStat
	OpSyncDir
	OpSetModTime
	OpLock
	OpClose
)

var opNames = [...]string{"open", "create", "read", "write", "truncate", "sync", "rename", "remove", "mkdir", "readdir", "stat", "syncdir", "setmodtime", "lock", "close"}

func (k OpKind) String() string { return opNames[k] }

// Changes reports the operations that alter what a crash would leave.
func (k OpKind) Changes() bool {
	switch k {
	case OpCreate, OpWrite, OpTruncate, OpSync, OpRename, OpRemove, OpMkdir, OpSyncDir:
		return true
	}
	return false
}

// Op is one operation, as hooks and fault scripts see it before it happens. To is the new
// name of a rename; Off and Len are set for reads and writes, Off for truncations.
type Op struct {
	Kind     OpKind
	Name, To string
	Off      int64
	Len      int
}
