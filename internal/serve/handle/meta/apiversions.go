package meta

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/serve/api"
)

var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)

// apiVersions serves ApiVersions v0-v5 (KIP-511, KIP-584, KIP-1242). The list is derived
// from the registry. Spec: semantics.md 3.
func (m *Meta) apiVersions(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if req.Version >= 3 && (!softwareName.MatchString(req.ClientSoftwareName) || !softwareName.MatchString(req.ClientSoftwareVersion)) {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return api.Done(resp)
	}
	if req.Version >= 5 {
		if code := m.rebootstrap(req); code != 0 {
			resp.ErrorCode = code
			return api.Done(resp)
		}
	}
	for _, a := range m.opts.Registry.All() {
		resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
	}
	m.features(resp)
	return api.Done(resp)
}

func apiKey(a *api.API) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AdvertisedMin, a.Max
	return k
}

// rebootstrap tells a client that reached another cluster or node than it meant.
func (m *Meta) rebootstrap(req *kmsg.ApiVersionsRequest) int16 {
	if (req.ClusterID == nil) != (req.NodeID == -1) {
		return kerr.InvalidRequest.Code
	}
	if req.ClusterID != nil && (*req.ClusterID != m.opts.ClusterID || req.NodeID != m.opts.NodeID) {
		return kerr.RebootstrapRequired.Code
	}
	return 0
}

// features lists supported and finalized feature levels. Clients before v4 cannot read a
// lowest level of 0 (KAFKA-17492), so such features are left out for them.
func (m *Meta) features(resp *kmsg.ApiVersionsResponse) {
	for _, f := range m.opts.Features() {
		if f.Min == 0 && resp.Version < 4 {
			continue
		}
		s := kmsg.NewApiVersionsResponseSupportedFeature()
		s.Name, s.MinVersion, s.MaxVersion = f.Name, f.Min, f.Max
		resp.SupportedFeatures = append(resp.SupportedFeatures, s)
	}
	img := m.opts.Image()
	resp.FinalizedFeaturesEpoch = img.Offset()
	add := func(name string, level int16) {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
	for name, level := range img.Features() {
		add(name, level)
	}
	if v := m.opts.KRaftVersion(); v > 0 {
		add("kraft.version", v)
	}
}

// apiVersionsUnsupported answers versions from the future in v0, which every client can
// read, naming our own range (KIP-511).
func (m *Meta) apiVersionsUnsupported(_ api.Context, rq *api.Request) api.Reply {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = append(resp.ApiKeys, apiKey(m.opts.Registry.Get(int16(kmsg.ApiVersions))))
	return api.Done(resp)
}
