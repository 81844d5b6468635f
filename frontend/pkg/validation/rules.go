package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

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
	// vmSizes are those that are offered, by lower case.
	vmSizes map[string]string
}

// NewRules makes the rules of a region that offers offer and is at location.
func NewRules(offer *config.Config, location string) *Rules {
	rules := &Rules{offer: offer, location: location, vmSizes: map[string]string{}}
	for _, size := range offer.VMSizes {
		rules.vmSizes[strings.ToLower(size)] = size
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

// VMSize is the virtual machine size as Azure writes it when the region offers it, and otherwise size as it is.
func (r *Rules) VMSize(size string) string {
	if offered, ok := r.vmSizes[strings.ToLower(size)]; ok {
		return offered
	}
	return size
}

// ARM's limits of tags.
const (
	maxTags     = 50
	maxTagKey   = 512
	maxTagValue = 256
)

// resource judges what every tracked resource has.
func (r *Rules) resource(report *report, resource *hub.Resource, experiments experiments, subscription *hub.Subscription) {
	switch {
	case resource.Location == "":
		report.required("location")
	case normalLocation(resource.Location) != normalLocation(r.location):
		report.unsupported("location", resource.Location, r.location)
	}
	r.tags(report, resource.Tags, experiments, subscription)
	identity(report, resource.Identity, resource.ID)
}

func (r *Rules) tags(report *report, tags map[string]string, experiments experiments, subscription *hub.Subscription) {
	if report.tooMany("tags", len(tags), maxTags) {
		return
	}
	seen := make(map[string]string, len(tags))
	for _, key := range sortedKeys(tags) {
		value, field := tags[key], "tags["+key+"]"
		switch {
		case key == "" || utf8.RuneCountInString(key) > maxTagKey:
			report.invalid(field, key, "a tag's name must have 1 to %d characters", maxTagKey)
		case seen[strings.ToLower(key)] != "":
			// ARM's names of tags are the same in any casing.
			report.duplicate(field, key)
		}
		seen[strings.ToLower(key)] = key
		if utf8.RuneCountInString(value) > maxTagValue {
			report.tooLongText(field, value, maxTagValue)
		}
		r.experiment(report, key, value, experiments, subscription)
	}
}

// Limits that the published structure does not set. What is accepted must fit into one document of the store and one
// message to a management cluster, so everything has one.
const (
	maxIdentities = 128
	maxOperators  = 64
	maxShort      = 256
)

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
	if report.tooMany("identity.userAssignedIdentities", len(identity.UserAssigned), maxIdentities) {
		return
	}
	seen := make(map[string]bool, len(identity.UserAssigned))
	for _, id := range sortedKeys(identity.UserAssigned) {
		field := "identity.userAssignedIdentities[" + id + "]"
		uuid(report, field+".clientId", identity.UserAssigned[id].ClientID)
		uuid(report, field+".principalId", identity.UserAssigned[id].PrincipalID)
		resourceRef(report, field, id, identityType, resourceID, "")
		if seen[hub.Key(id)] {
			report.duplicate(field, id)
		}
		seen[hub.Key(id)] = true
	}
}

// uuid judges what ARM fills in, and a client may send back.
func uuid(report *report, field, value string) {
	if value != "" && !armid.IsUUID(value) {
		report.invalid(field, value, "must be a UUID")
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
	if owner := armid.Subscription(ownerID); owner != "" && !strings.EqualFold(owner, parsed.SubscriptionID) {
		report.invalid(field, id, "must be in the subscription %s of the resource", owner)
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

// The longest ids that a hosted cluster takes.
const (
	maxGroupOrNetworkID = 255
	maxEncryptionSetID  = 285
)

// subnetRef judges the id of a subnet, whose parts have the names that Azure gives.
func subnetRef(report *report, field, id, ownerID, managedGroup string) bool {
	parsed, ok := resourceRef(report, field, id, subnetType, ownerID, managedGroup)
	if !ok {
		return false
	}
	network, subnet := parsed.Names[0], parsed.Names[1]
	if len(network) < 2 || len(network) > 64 || !isNetworkName(network) {
		report.invalid(field, id, "the virtual network's name must have 2 to 64 letters, digits, '_', '-' and '.', and end with a letter, a digit or '_'")
	}
	if len(subnet) > 80 || !isNetworkName(subnet) || !isAlphanumeric(subnet[0]) {
		report.invalid(field, id, "the subnet's name must have at most 80 letters, digits, '_', '-' and '.', start with a letter or digit, and end with a letter, a digit or '_'")
	}
	if len(armid.Parent(id)) > maxGroupOrNetworkID {
		report.invalid(field, id, "the virtual network's id must have no more than %d characters", maxGroupOrNetworkID)
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

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
