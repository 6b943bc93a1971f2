package node

import (
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

type groups struct{}

func newGroups(*Node) *groups                    { return &groups{} }
func (*groups) apply(*image.Delta, *image.Image) {}
func (*groups) register(*api.Registry)           {}
func (*groups) close()                           {}
