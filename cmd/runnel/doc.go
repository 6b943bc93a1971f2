// Command runnel is the server and its tools; see `runnel --help`.
package main
