package controller

import (
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// BootstrapRecords is what a new cluster at a metadata.version starts with.
func BootstrapRecords(metadata int16) []metarec.Record {
	records := []metarec.Record{&metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: metadata}}
	levels := feature.Bootstrap(metadata)
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		records = append(records, &metarec.FeatureLevel{Name: name, FeatureLevel: levels[name]})
	}
	return records
}

// bootstrap gives the first records of a new cluster (metadata-records.md §1).
func (c *core) bootstrap() []metarec.Record {
	boot := c.opt.Bootstrap
	if boot == nil {
		boot = BootstrapRecords(feature.LatestMetadata)
	}
	metadata, elr, hasMinISR := int16(0), false, false
	for _, r := range boot {
		switch r := r.(type) {
		case *metarec.FeatureLevel:
			if r.Name == feature.MetadataVersion {
				metadata = r.FeatureLevel
			}
			elr = elr || r.Name == feature.ELR && r.FeatureLevel >= 1
		case *metarec.Config:
			hasMinISR = hasMinISR || r.ResourceType == image.BrokerConfig && r.ResourceName == "" && r.Name == minISRKey
		}
	}
	records := slices.Clone(boot)
	if elr && !hasMinISR {
		records = append(records, c.clusterMinISR())
	}
	if metadata >= feature.Transactions {
		name := "Bootstrap records"
		records = append([]metarec.Record{&metarec.BeginTransaction{Name: &name}}, records...)
		records = append(records, &metarec.EndTransaction{})
	}
	return records
}

func (c *core) clusterMinISR() *metarec.Config {
	value := strconv.Itoa(c.opt.MinISR)
	return &metarec.Config{ResourceType: image.BrokerConfig, Name: minISRKey, Value: &value}
}

// updateFeatures serves UpdateFeatures: all or nothing (semantics.md §14.5).
func (c *core) updateFeatures(rq *Request, body *kmsg.UpdateFeaturesRequest) result {
	resp := body.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	res := result{response: resp, atomic: true}
	refuse := func(err *apiError) result {
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return result{response: resp}
	}
	if !c.onCluster(rq, opAlter) {
		return refuse(plain(kerr.ClusterAuthorizationFailed))
	}
	target := maps.Clone(c.img.Features())
	kraft := int16(-1)
	seen := map[string]bool{}
	for i := range body.FeatureUpdates {
		u := &body.FeatureUpdates[i]
		err := c.checkFeature(body.Version, u)
		if seen[u.Feature] {
			err = fail(kerr.InvalidRequest, "Feature %s appears more than once.", u.Feature)
		}
		if err != nil {
			err.text = "The update failed for all features since the following feature had an error: " + err.text
			return refuse(err)
		}
		seen[u.Feature] = true
		if u.Feature == feature.KRaftVersion {
			kraft = u.MaxVersionLevel
			continue
		}
		if c.img.Feature(u.Feature) != u.MaxVersionLevel {
			res.records = append(res.records, &metarec.FeatureLevel{Name: u.Feature, FeatureLevel: u.MaxVersionLevel})
		}
		target[u.Feature] = u.MaxVersionLevel
	}
	for name, level := range target {
		if needs, least, ok := feature.Dependency(name, level); ok && target[needs] < least {
			return refuse(fail(kerr.InvalidUpdateVersion, "The update failed for all features since the following feature had an error: %s could not be set to %d because it depends on %s level %d", name, level, needs, least))
		}
	}
	if !c.img.ELREnabled() && target[feature.ELR] >= 1 {
		res.records = append(res.records, c.enableELR()...)
	}
	if kraft >= 0 && c.opt.KRaftVersion != nil {
		if err := c.opt.KRaftVersion(kraft, body.ValidateOnly); err != nil {
			return refuse(asAPIError(err, kerr.InvalidUpdateVersion))
		}
	}
	if body.Version < 2 {
		for _, u := range body.FeatureUpdates {
			r := kmsg.NewUpdateFeaturesResponseResult()
			r.Feature = u.Feature
			resp.Results = append(resp.Results, r)
		}
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

// enableELR gives the ELR its base: one cluster-wide minimum and none per broker.
func (c *core) enableELR() []metarec.Record {
	var records []metarec.Record
	if _, ok := c.img.Config(image.BrokerConfig, "")[minISRKey]; !ok {
		records = append(records, c.clusterMinISR())
	}
	for key, configs := range c.img.Configs() {
		if _, ok := configs[minISRKey]; ok && key.Type == image.BrokerConfig && key.Name != "" {
			records = append(records, &metarec.Config{ResourceType: key.Type, ResourceName: key.Name, Name: minISRKey})
		}
	}
	return records
}

func (c *core) checkFeature(version int16, u *kmsg.UpdateFeaturesRequestFeatureUpdate) *apiError {
	name, level := u.Feature, u.MaxVersionLevel
	upgradeType := u.UpgradeType
	if version == 0 {
		upgradeType = 1
		if u.AllowDowngrade {
			upgradeType = 2
		}
	}
	invalid := func(format string, args ...any) *apiError {
		err := fail(kerr.InvalidUpdateVersion, format, args...)
		err.text = "Invalid update version " + strconv.Itoa(int(level)) + " for feature " + name + ". " + err.text
		return err
	}
	own, known := feature.SupportedRange(name)
	current := c.img.Feature(name)
	switch {
	case upgradeType < 1 || upgradeType > 3:
		return invalid("The controller does not support the given upgrade type.")
	case level < 0:
		return invalid("A feature version cannot be less than 0.")
	case !known:
		return invalid("Local controller %d does not support this feature.", c.opt.NodeID)
	case !own.Contains(level):
		return invalid("Local controller %d only supports versions %d-%d", c.opt.NodeID, own.Min, own.Max)
	case name == feature.KRaftVersion:
		if c.opt.KRaftVersion == nil && level > 0 {
			return invalid("kraft.version cannot be changed here.")
		}
		return nil
	case level < current && upgradeType == 1:
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case level > current && upgradeType != 1:
		return invalid("Can't downgrade to a newer version.")
	}
	if err := c.nodesSupport(name, level, invalid); err != nil {
		return err
	}
	if name == feature.MetadataVersion && level < current && feature.LosesMetadata(current, level) {
		if upgradeType == 3 {
			return fail(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. Unsafe metadata downgrade is not supported in this version.", current, level)
		}
		return fail(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. Refusing to perform the requested downgrade because it might delete metadata information.", current, level)
	}
	return nil
}

// nodesSupport asks every registered broker and controller, and that all voters are known.
func (c *core) nodesSupport(name string, level int16, invalid func(string, ...any) *apiError) *apiError {
	check := func(kind string, id int32, features []image.FeatureRange) *apiError {
		r := feature.Range{Name: name}
		for _, f := range features {
			if f.Name == name {
				r.Min, r.Max = f.MinSupportedVersion, f.MaxSupportedVersion
			}
		}
		if r.Contains(level) {
			return nil
		}
		if r.Max == 0 {
			return invalid("%s %d does not support this feature.", kind, id)
		}
		return invalid("%s %d only supports versions %d-%d", kind, id, r.Min, r.Max)
	}
	for _, b := range c.img.Brokers() {
		if err := check("Broker", b.ID, b.Features); err != nil {
			return err
		}
	}
	if c.img.MetadataVersion() < feature.ControllerRegistration {
		return nil
	}
	for _, k := range c.img.Controllers() {
		if err := check("Controller", k.ID, k.Features); err != nil {
			return err
		}
	}
	if c.opt.QuorumVoters != nil {
		for _, id := range c.opt.QuorumVoters() {
			if id != c.opt.NodeID && c.img.Controller(id) == nil {
				return invalid("Controller %d has not registered.", id)
			}
		}
	}
	return nil
}
