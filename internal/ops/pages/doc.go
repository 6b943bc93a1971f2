// Package pages writes the documentation that is derived from code: the configuration
// reference from the key table, the compatibility table from the registered APIs.
//
// Owns: the pages' form. Does not own: any fact in them.
// Called by: its test, which keeps docs/ current; `make docs` rewrites them.
// Start reading at Configuration.
package pages
