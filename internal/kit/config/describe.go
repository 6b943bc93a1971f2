package config

import "slices"

// Synonym is one place where a value could come from.
type Synonym struct {
	Name   string
	Value  *string
	Source Source
}

// Entry is one key as DescribeConfigs shows it. Value is nil where there is none or it
// is sensitive.
type Entry struct {
	Name      string
	Value     *string
	Source    Source
	Type      Type
	ReadOnly  bool
	Sensitive bool
	Doc       string
	Synonyms  []Synonym
}

// DescribeTopic lists the topic keys (all, or those of names) with effective values.
func (l *Layers) DescribeTopic(overrides map[string]string, names []string) []Entry {
	return describe(topicKeys, names, func(k *Key) []Synonym {
		var own []Synonym
		if v, ok := overrides[k.Name]; ok {
			own = append(own, Synonym{k.Name, &v, SourceTopic})
		}
		return append(own, l.chain(k, k.Synonyms)...)
	})
}

// DescribeGroup lists the group keys for a group with these stored values.
func (l *Layers) DescribeGroup(stored map[string]string, names []string) []Entry {
	return describe(groupKeys, names, func(k *Key) []Synonym {
		var own []Synonym
		if v, ok := stored[k.Name]; ok {
			own = append(own, Synonym{k.Name, &v, SourceGroup})
		}
		return append(own, l.chain(k, k.Synonyms)...)
	})
}

// DescribeClientMetrics lists a subscription's keys.
func DescribeClientMetrics(stored map[string]string, names []string) []Entry {
	return describe(clientMetricsKeys, names, func(k *Key) []Synonym {
		var own []Synonym
		if v, ok := stored[k.Name]; ok {
			own = append(own, Synonym{k.Name, &v, SourceClientMetrics})
		}
		return append(own, defaultOf(k)...)
	})
}

// DescribeBroker lists this broker's keys, known or not: values of unknown ones are
// sensitive, since nobody can say what they hold.
func (l *Layers) DescribeBroker(names []string) []Entry {
	keys := BrokerKeys()
	unknown := map[string]bool{}
	l.each(func(_ Source, values map[string]string) bool {
		for n := range values {
			if BrokerKey(n) == nil {
				unknown[n] = true
			}
		}
		return true
	})
	var extra []string
	for n := range unknown {
		extra = append(extra, n)
	}
	slices.Sort(extra)
	for _, n := range extra {
		keys = append(keys, Key{Name: n, Default: Null})
	}
	out := describe(keys, names, func(k *Key) []Synonym { return l.chain(k, family(k.Name)) })
	for i := range out {
		k := BrokerKey(out[i].Name)
		out[i].ReadOnly = k == nil || k.Dynamic == ReadOnly
		if k == nil {
			out[i].Sensitive, out[i].Value = true, nil
			for j := range out[i].Synonyms {
				out[i].Synonyms[j].Value = nil
			}
		}
	}
	return out
}

// DescribeDynamic lists only the values stored for a broker resource: the cluster-wide
// defaults when the resource name is empty.
func DescribeDynamic(values map[string]string, src Source, names []string) []Entry {
	var out []Entry
	for _, n := range sortedNames(values) {
		if names != nil && !slices.Contains(names, n) {
			continue
		}
		v := values[n]
		e := Entry{Name: n, Value: &v, Source: src, Synonyms: []Synonym{{n, &v, src}}}
		k := BrokerKey(n)
		if k != nil {
			e.Type, e.Doc = k.Type, k.Doc()
		}
		if k == nil || k.Type == Password {
			e.Sensitive, e.Value, e.Synonyms[0].Value = true, nil, nil
		}
		out = append(out, e)
	}
	return out
}

func describe(keys []Key, names []string, chain func(*Key) []Synonym) []Entry {
	var out []Entry
	for i := range keys {
		k := &keys[i]
		if k.Internal || names != nil && !slices.Contains(names, k.Name) {
			continue
		}
		e := Entry{Name: k.Name, Type: k.Type, Source: SourceDefault, Doc: k.Doc(), Sensitive: k.Type == Password}
		e.Synonyms = chain(k)
		if len(e.Synonyms) > 0 {
			e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
		}
		if first := firstUnit(k, e); first != nil {
			e.Value = first
		}
		if e.Sensitive {
			e.Value = nil
			for j := range e.Synonyms {
				e.Synonyms[j].Value = nil
			}
		}
		out = append(out, e)
	}
	return out
}

// firstUnit converts the winning synonym's value to the key's own unit: synonyms are
// listed as they were set, hours as hours.
func firstUnit(k *Key, e Entry) *string {
	if len(e.Synonyms) == 0 || e.Synonyms[0].Value == nil || e.Synonyms[0].Name == k.Name {
		return nil
	}
	v := convert(k.Name, e.Synonyms[0].Name, *e.Synonyms[0].Value)
	return &v
}

// chain lists where a key's value could come from below the resource's own: by source,
// then in synonym order.
func (l *Layers) chain(k *Key, names []string) []Synonym {
	var out []Synonym
	l.each(func(s Source, values map[string]string) bool {
		for _, n := range names {
			if v, ok := values[n]; ok {
				out = append(out, Synonym{n, &v, s})
			}
		}
		return true
	})
	for _, n := range names {
		if b := BrokerKey(n); b != nil && b.HasDefault() {
			v := b.Default
			out = append(out, Synonym{n, &v, SourceDefault})
		}
	}
	if len(names) == 0 {
		out = append(out, defaultOf(k)...)
	}
	return out
}

func defaultOf(k *Key) []Synonym {
	if !k.HasDefault() {
		return nil
	}
	v := k.Default
	return []Synonym{{k.Name, &v, SourceDefault}}
}
