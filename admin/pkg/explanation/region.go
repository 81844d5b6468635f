package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// RegionFacts holds what is known of a region at one time.
type RegionFacts struct {
	Time       time.Time
	Components []adminv1.Component
	// Shards and Concerns come from Cluster Service.
	Shards   []*csv1.ProvisionShard
	Concerns []adminv1.ConcernGroup
	// Unavailable maps each layer that could not be read to the reason.
	Unavailable map[string]string
}

// maxConcernItems is the maximum number of items about clusters that wait for the same.
const maxConcernItems = 10

// Region explains a region: its outages, and what clusters wait for.
func Region(f RegionFacts) *adminv1.RegionExplanation {
	e := &adminv1.RegionExplanation{Time: f.Time, Concerns: f.Concerns, Unavailable: f.Unavailable, Partial: len(f.Unavailable) > 0}
	e.Components = append(slices.Clone(f.Components), silentAgents(f.Shards, f.Components, f.Time)...)
	for _, s := range f.Shards {
		e.Clusters += int(s.GetClusters())
	}
	for _, g := range f.Concerns {
		e.NotReady += g.Clusters
	}
	// The facts of no cluster format times and names.
	s := &subject{facts: &facts{now: f.Time}}
	outages := layers.Outages(e.Components)
	for _, o := range outages {
		e.Items = append(e.Items, f.outage(s, o, e))
	}
	waiting := f.waiting(s)
	if len(outages) > 0 {
		// Concerns may be outdated, or effects of the outages: nobody but an SRE must act on them now.
		for i := range waiting {
			waiting[i].Responsible, waiting[i].Overdue, waiting[i].Actions = adminv1.PartyService, false, nil
		}
	}
	slices.SortStableFunc(waiting, func(a, b adminv1.ExplanationItem) int { return urgency(a.Responsible) - urgency(b.Responsible) })
	e.Items = append(e.Items, waiting[:min(len(waiting), maxConcernItems)]...)
	if len(e.Items) == 0 {
		text := fmt.Sprintf("All %s of the region are ready, and all %s are in their desired state.", count(int64(len(e.Components)), "component"), count(int64(e.Clusters), "cluster"))
		e.Items = []adminv1.ExplanationItem{{Code: adminv1.ExplanationRegionReady, Subject: "the region", Responsible: adminv1.PartyNone, Summary: sentence(adminv1.SentenceSummary, text)}}
	}
	return e
}

// outage returns the item of an outage.
func (f *RegionFacts) outage(s *subject, o layers.Outage, e *adminv1.RegionExplanation) adminv1.ExplanationItem {
	layer := layerTable[o.Layer]
	title := s.fillFor(o.ProvisionShard, layer.title)
	predicate := predicates[o.State][1]
	if !o.Since.IsZero() {
		predicate = strings.Replace(predicates[o.State][0], "{since}", s.since(o.Since), 1)
	}
	affected := e.Clusters
	for _, shard := range f.Shards {
		if shard.GetName() == o.ProvisionShard {
			affected = int(shard.GetClusters())
		}
	}
	where := "of the region"
	if o.ProvisionShard != "" {
		where = "on " + o.ProvisionShard
	}
	effect := count(int64(affected), "cluster") + " " + where
	verb := " are affected"
	if affected == 1 {
		verb = " is affected"
	}
	_, unread := f.Unavailable[adminv1.LayerClusterService]
	if unread {
		effect, verb = "all clusters "+where, " are affected"
	}
	item := adminv1.ExplanationItem{
		Code: adminv1.ExplanationLayerAway, Subject: cmp.Or(o.ProvisionShard, "the region"), Layer: o.Layer, State: string(o.State), Since: o.Since, Responsible: adminv1.PartySRE,
		Summary:  sentenceAt(adminv1.SentenceSummary, upperFirst(title)+" "+predicate+": "+effect+verb+".", o.Since),
		Evidence: s.componentEvidence(o),
		Actions:  []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for an SRE: "+restore(o, title)+"."), sentence(adminv1.SentenceOutcome, layer.impact)},
	}
	if layer.command == regionally {
		item.Command = regionStatus
	} else {
		item.Command = s.fillFor(o.ProvisionShard, layer.command)
	}
	return item
}

// waiting returns an item for each concern, for all shards and versions together: the largest first.
func (f *RegionFacts) waiting(s *subject) []adminv1.ExplanationItem {
	byConcern := map[[2]string][]adminv1.ConcernGroup{}
	var order [][2]string
	for _, g := range f.Concerns {
		key := [2]string{g.Layer, g.State}
		if byConcern[key] == nil {
			order = append(order, key)
		}
		byConcern[key] = append(byConcern[key], g)
	}
	total := func(key [2]string) (n int) {
		for _, g := range byConcern[key] {
			n += g.Clusters
		}
		return n
	}
	slices.SortStableFunc(order, func(a, b [2]string) int { return total(b) - total(a) })
	var items []adminv1.ExplanationItem
	for _, key := range order {
		n, oldest := total(key), f.Time
		for _, g := range byConcern[key] {
			if g.OldestSince.Before(oldest) {
				oldest = g.OldestSince
			}
		}
		verb := "are"
		if n == 1 {
			verb = "is"
		}
		w := usualWait(key)
		text := fmt.Sprintf("%s %s in state %s/%s, the oldest %s.", count(int64(n), "cluster"), verb, key[0], key[1], s.since(oldest))
		item := adminv1.ExplanationItem{Code: adminv1.ExplanationClustersWaiting, Subject: "the region", Layer: key[0], State: key[1], Since: oldest,
			Summary: sentenceAt(adminv1.SentenceSummary, text, oldest), Evidence: inCommon(byConcern[key], n),
			Responsible: w.responsible, Command: "hcpctl cluster list --region --not-ready --concern " + key[0] + "/" + key[1]}
		if w.usual > 0 {
			item.UsualDuration, item.Overdue = w.usual.String(), f.Time.Sub(oldest) > w.usual
		}
		if item.Overdue {
			item.Responsible = adminv1.PartySRE
			item.Actions = []adminv1.Sentence{sentence(adminv1.SentenceAction, "Action for an SRE: explain the oldest ones; this usually takes less than "+duration(w.usual)+".")}
		}
		items = append(items, item)
	}
	return items
}

// usualWait returns the responsible party and the usual duration of a concern.
func usualWait(key [2]string) wait {
	w, known := waits[key]
	switch {
	case known:
		return w
	case key[0] == layerAzure:
		return wait{responsible: adminv1.PartyAzure, usual: 15 * time.Minute}
	case key[0] == "deletion":
		return wait{responsible: adminv1.PartyService, usual: 25 * time.Minute}
	}
	return wait{responsible: adminv1.PartyService, usual: 20 * time.Minute}
}

// mostly is the share of clusters, in percent, from which a property is called common.
const mostly = 80

// inCommon returns the shard and the version that most of n clusters have in common, if there are several clusters.
func inCommon(groups []adminv1.ConcernGroup, n int) []adminv1.Sentence {
	if n < 2 {
		return nil
	}
	var sentences []adminv1.Sentence
	for _, property := range []struct {
		of   func(adminv1.ConcernGroup) string
		text string
	}{
		{func(g adminv1.ConcernGroup) string { return g.ProvisionShard }, "run on %s"},
		{func(g adminv1.ConcernGroup) string { return g.Version }, "have version %s"},
	} {
		counts := map[string]int{}
		for _, g := range groups {
			counts[property.of(g)] += g.Clusters
		}
		for value, k := range counts {
			if value == "" || k*100 < n*mostly {
				continue
			}
			who := fmt.Sprintf("%d of the %d", k, n)
			if k == n {
				who = fmt.Sprintf("All %d", n)
			}
			sentences = append(sentences, sentence(adminv1.SentenceInCommon, who+" "+fmt.Sprintf(property.text, value)+"."))
		}
	}
	return sentences
}
