package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/armid"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
)

// ExperimentalFeature is the subscription feature without which nothing experimental is allowed.
const ExperimentalFeature = hub.ProviderNamespace + "/ExperimentalReleaseFeatures"

// Rules judges resources of one region.
type Rules struct {
	offer    *config.Config
	location string
	vmSizes  map[string]bool
}

// NewRules makes the rules of a region that offers offer and is at location.
func NewRules(offer *config.Config, location string) *Rules {
	rules := &Rules{offer: offer, location: location, vmSizes: map[string]bool{}}
	for _, size := range offer.VMSizes {
		rules.vmSizes[strings.ToLower(size)] = true
	}
	return rules
}

// normalLocation is the form under which locations are compared: "West US 3" is westus3.
func normalLocation(location string) string {
	return strings.ToLower(strings.ReplaceAll(location, " ", ""))
}

// Location is the region's own name for itself when location means it, and otherwise location as it is.
func (r *Rules) Location(location string) string {
	if normalLocation(location) == normalLocation(r.location) {
		return r.location
	}
	return location
}

// ARM's limits of tags.
const (
	maxTags     = 50
	maxTagKey   = 512
	maxTagValue = 256
)

// experimentalPrefix starts the tags that steer the service.
const experimentalPrefix = "aro-hcp.experimental."

// resource judges what every tracked resource has.
func (r *Rules) resource(report *report, resource *hub.Resource, experiments map[string]func(string) string, subscription *hub.Subscription) {
	switch {
	case resource.Location == "":
		report.required("location")
	case normalLocation(resource.Location) != normalLocation(r.location):
		report.unsupported("location", resource.Location, r.location)
	}
	if len(resource.Tags) > maxTags {
		report.tooMany("tags", len(resource.Tags), maxTags)
	}
	for key, value := range resource.Tags {
		if key == "" || len(key) > maxTagKey {
			report.invalid("tags["+key+"]", key, "a tag's name must have 1 to %d characters", maxTagKey)
		}
		if len(value) > maxTagValue {
			report.tooLong("tags["+key+"]", value, maxTagValue)
		}
		r.experiment(report, key, value, experiments, subscription)
	}
	identity(report, resource.Identity, resource.ID)
}

func (r *Rules) experiment(report *report, key, value string, experiments map[string]func(string) string, subscription *hub.Subscription) {
	lower := strings.ToLower(key)
	if !strings.HasPrefix(lower, experimentalPrefix) {
		return
	}
	field := "tags[" + key + "]"
	check, known := experiments[lower]
	if !known {
		report.unsupported(field, key, slices.Sorted(maps.Keys(experiments))...)
		return
	}
	if !subscription.HasFeature(ExperimentalFeature) {
		report.forbidden(field, value, "needs the feature %s registered on the subscription", ExperimentalFeature)
		return
	}
	if message := check(value); message != "" {
		report.invalid(field, value, "%s", message)
	}
}

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

// identity judges the managed identity by itself.
func identity(report *report, identity *hub.Identity, resourceID string) {
	if identity == nil {
		return
	}
	switch identity.Type {
	case "":
		report.required("identity.type")
	case "None":
		if len(identity.UserAssigned) > 0 {
			report.forbidden("identity.userAssignedIdentities", len(identity.UserAssigned), "must not be given when type is None")
		}
	case "UserAssigned":
		if len(identity.UserAssigned) == 0 {
			report.required("identity.userAssignedIdentities")
		}
	default:
		report.unsupported("identity.type", identity.Type, "None", "UserAssigned")
	}
	seen := make(map[string]bool, len(identity.UserAssigned))
	for id := range identity.UserAssigned {
		field := "identity.userAssignedIdentities[" + id + "]"
		resourceRef(report, field, id, identityType, resourceID, "")
		if seen[hub.Key(id)] {
			report.duplicate(field, id)
		}
		seen[hub.Key(id)] = true
	}
}

// resourceRef judges an ARM id: of the type, in the subscription of the resource that names it, and not in the managed
// resource group. The parsed id is for further rules; ok is false when there is nothing to go on with.
func resourceRef(report *report, field, id, resourceType, ownerID, managedGroup string) (parsed armid.ID, ok bool) {
	if id == "" {
		report.required(field)
		return armid.ID{}, false
	}
	parsed, err := armid.Parse(id)
	if err != nil {
		report.invalid(field, id, "must be an Azure resource id: %s", err)
		return armid.ID{}, false
	}
	if !strings.EqualFold(parsed.Type, resourceType) {
		report.invalid(field, id, "must be the id of a resource of type %s", resourceType)
		return armid.ID{}, false
	}
	if owner, err := armid.Parse(ownerID); err == nil && !strings.EqualFold(owner.SubscriptionID, parsed.SubscriptionID) {
		report.invalid(field, id, "must be in the subscription %s of the resource", owner.SubscriptionID)
		return armid.ID{}, false
	}
	if managedGroup != "" && strings.EqualFold(parsed.ResourceGroup, managedGroup) {
		report.invalid(field, id, "must not be in the managed resource group %s", managedGroup)
	}
	return parsed, true
}

// channelGroup judges a channel group; those that are not for production need the feature.
func channelGroup(report *report, field, group string, subscription *hub.Subscription) {
	switch group {
	case "":
		report.required(field)
	case "stable", "fast":
	case "candidate", "nightly":
		if !subscription.HasFeature(ExperimentalFeature) {
			report.unsupported(field, group, "stable", "fast")
		}
	default:
		if subscription.HasFeature(ExperimentalFeature) {
			report.unsupported(field, group, "stable", "fast", "candidate", "nightly")
			return
		}
		report.unsupported(field, group, "stable", "fast")
	}
}

const subnetType = "Microsoft.Network/virtualNetworks/subnets"

// immutable notes every create-only field that differs.
type immutable struct {
	report *report
}

func (i immutable) text(field, old, now string) {
	if old != now {
		i.changed(field, now)
	}
}

// id compares without regard to case, as ARM does.
func (i immutable) id(field, old, now string) {
	if !strings.EqualFold(old, now) {
		i.changed(field, now)
	}
}

func (i immutable) value(field string, same bool, now any) {
	if !same {
		i.changed(field, now)
	}
}

func (i immutable) ids(field string, old, now map[string]string) {
	if len(old) == 0 && len(now) == 0 {
		return
	}
	if !maps.EqualFunc(old, now, strings.EqualFold) {
		i.changed(field, fmt.Sprint(len(now)))
	}
}

func (i immutable) changed(field string, now any) {
	i.report.forbidden(field, now, "field is immutable")
}
