package server

const canReadRaw = false

func (fr *frameReader) readRaw(uintptr) bool { return true }
