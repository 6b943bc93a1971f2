// Package layout holds no code: its tests keep the structure of this repository true. They
// check the import floors of ARCHITECTURE.md, that every package says what it owns, that
// seams are not bypassed, and that the paths named in the documentation exist.
//
// Start reading at layout_test.go.
package layout
