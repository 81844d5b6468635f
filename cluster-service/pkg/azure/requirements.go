package azure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

const (
	// unmetInterval is the mean time between checks of a node pool that does not have what it needs, and unreadInterval that of one about which Azure
	// Compute does not answer.
	unmetInterval  = 2 * time.Minute
	unreadInterval = 5 * time.Minute
	// nodesInterval is the mean time after which a node pool with missing nodes is checked again. Its own new virtual machines count as used
	// before their nodes are ready, so a check in between would find too little quota.
	nodesInterval = 20 * time.Minute
)

// The properties of a node pool that conditions name.
const (
	sizeProperty = "properties.platform.vmSize"
	zoneProperty = "properties.platform.availabilityZone"
)

// checkRequirements checks what the node pools of the cluster need from Azure Compute. It sends no request if all nodes are ready. The step is done
// with any answer, because nothing waits for it: HyperShift creates the machines when the cause is gone.
func (a *attempt) checkRequirements(ctx context.Context) error {
	before, found := a.azure.Requirements(), map[string]fleet.Requirement{}
	reserved := map[string]int64{}
	for _, need := range a.needs() {
		known, again := before[need.UID], time.Duration(0)
		isKnown := known.Input == need.Input()
		switch {
		case need.Missing == 0:
			known = requirement(need, met())
		case isKnown && known.Status == "True" && a.Now().Before(known.Time.Add(nodesInterval/2)):
			again = backoff.Jitter(nodesInterval)
		default:
			v, until := a.check(ctx, need, reserved)
			if v.status != "Unknown" || !isKnown {
				known = requirement(need, v)
			}
			known.Time = a.Now()
			again = map[string]time.Duration{"True": backoff.Jitter(nodesInterval), "False": backoff.Jitter(unmetInterval),
				"Unknown": max(backoff.Jitter(unreadInterval), until.Sub(a.Now()))}[v.status]
		}
		found[need.UID] = known
		if again > 0 && (a.outcome.RetryAfter == 0 || again < a.outcome.RetryAfter) {
			a.outcome.RetryAfter = again
		}
	}
	a.outcome.Facts = fleet.RequirementFacts(found)
	a.done()
	return nil
}

// finding is what a check of a need found: the status, reason and message of its condition.
type finding struct{ status, reason, message string }

func met() finding { return finding{"True", clusterstatus.RequirementsMet, ""} }

func unmet(reason, property, format string, args ...any) finding {
	return finding{"False", reason, clusterstatus.RefusedMessage([]string{property}, fmt.Sprintf(format, args...))}
}

func requirement(need fleet.PoolNeed, f finding) fleet.Requirement {
	return fleet.Requirement{Input: need.Input(), Status: f.status, Reason: f.reason, Message: f.message}
}

// check reads what Azure Compute offers, and decides. until is when an answer that is missing is requested again.
func (a *attempt) check(ctx context.Context, need fleet.PoolNeed, reserved map[string]int64) (f finding, until time.Time) {
	subscription, location := a.cluster.Spec.GetPlatform().GetSubscriptionId(), a.cluster.Spec.GetLocation()
	unread := func(what string, err error) finding {
		a.outcome.Awaited = "the " + what + " of the subscription in Azure Compute: " + describe(err)
		return finding{"Unknown", clusterstatus.RequirementsUnread, "Azure Compute could not be read. The service tries again, and does not wait for the answer."}
	}
	sizes := a.Capacity.sizes.get(ctx, subscription, location)
	if sizes.err != nil {
		return unread("sizes", sizes.err), sizes.until
	}
	size, offered := sizes.value[strings.ToLower(need.VMSize)]
	if f := checkSize(need, location, size, offered); f.status != "True" {
		return f, time.Time{}
	}
	quotas := a.Capacity.quotas.get(ctx, subscription, location)
	if quotas.err != nil {
		return unread("quotas", quotas.err), quotas.until
	}
	return checkQuotas(need, location, size, quotas.value, reserved), time.Time{}
}

// checkSize decides whether the subscription can use the size in the region, and in the zone if the node pool has one.
func checkSize(need fleet.PoolNeed, location string, size Size, offered bool) finding {
	const another = "Create the node pool with another "
	zones := strings.Join(size.Zones, ", ")
	switch reason, isRestricted := size.RestrictedZones[need.Zone]; {
	case !offered:
		return unmet(clusterstatus.VMSizeNotOffered, sizeProperty, "Azure does not offer the size %s in %s. %ssize.", need.VMSize, location, another)
	case size.Restriction != "":
		return unmet(clusterstatus.VMSizeRestricted, sizeProperty, "the subscription cannot use the size %s in %s (%s). Request it from Azure support, or create the node pool with another size.",
			need.VMSize, location, size.Restriction)
	case need.Zone == "":
	case !containsFold(size.Zones, need.Zone):
		return unmet(clusterstatus.VMSizeNotOffered, zoneProperty, "Azure does not offer the size %s in zone %s of %s; the zones that have it are: %s. %szone or size.",
			need.VMSize, need.Zone, location, zones, another)
	case isRestricted:
		return unmet(clusterstatus.VMSizeRestricted, zoneProperty, "the subscription cannot use the size %s in zone %s of %s (%s). Request it from Azure support, or create the node pool with another zone or size.",
			need.VMSize, need.Zone, location, reason)
	}
	return met()
}

// checkQuotas decides whether the quotas of the family and of all cores suffice for the missing nodes. reserved has the cores by quota that other node
// pools of the cluster need; checkQuotas adds those of this one.
func checkQuotas(need fleet.PoolNeed, location string, size Size, quotas map[string]Quota, reserved map[string]int64) finding {
	wanted := need.Missing * size.Cores
	var short []string
	for _, of := range []struct{ quota, text string }{{strings.ToLower(size.Family), "of the family " + size.Family}, {totalCores, "of all cores of the region"}} {
		q, known := quotas[of.quota]
		if !known || q.Limit < 0 || of.quota == "" {
			continue
		}
		if left := max(0, q.Left()-reserved[of.quota]); wanted > left {
			short = append(short, fmt.Sprintf("%d of %d %s", left, q.Limit, of.text))
		}
	}
	if len(short) > 0 {
		return unmet(clusterstatus.QuotaExceeded, sizeProperty, "the missing nodes (%d of the size %s) need %d cores in %s, and the quota of the subscription has left: %s. Request a higher quota from Azure, or delete virtual machines.",
			need.Missing, need.VMSize, wanted, location, strings.Join(short, "; "))
	}
	for _, quota := range []string{strings.ToLower(size.Family), totalCores} {
		reserved[quota] += wanted
	}
	return met()
}
