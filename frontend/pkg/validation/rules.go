package validation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// ExperimentalFeature is the subscription feature that allows experimental behaviour.
const ExperimentalFeature = hub.ProviderNamespace + "/ExperimentalReleaseFeatures"

// Rules validates the resources of one region.
type Rules struct {
	offer    *config.Config
	location string
	// loopbackIssuers permits issuers of tokens on this machine.
	loopbackIssuers bool
}

// NewRules returns the rules of the region at location with the given offer.
func NewRules(offer *config.Config, location string) *Rules {
	return &Rules{offer: offer, location: location}
}

// AllowLoopbackIssuers returns rules that also accept token issuers at 127.0.0.1, at any port. They are for local regions.
func (r *Rules) AllowLoopbackIssuers() *Rules {
	next := *r
	next.loopbackIssuers = true
	return &next
}

// normalLocation returns the form of a location for comparisons: "West US 3" is westus3.
func normalLocation(location string) string {
	return strings.ToLower(strings.ReplaceAll(location, " ", ""))
}

// Location returns the region's own name if location names the region, and location otherwise.
func (r *Rules) Location(location string) string {
	if normalLocation(location) == normalLocation(r.location) {
		return r.location
	}
	return location
}

// ARM's limits of tags.
const (
	maxTagKey   = 512
	maxTagValue = 256
)

// resource validates the fields of every tracked resource. It returns the result of identity.
func (r *Rules) resource(report *report, resource *hub.Resource) map[string]*identityUse {
	switch {
	case resource.Location == "":
		report.required("location")
	case normalLocation(resource.Location) != normalLocation(r.location):
		report.unsupported("location", resource.Location, r.location)
	}
	tags(report, resource.Tags)
	return identity(report, resource.Identity, resource.ID)
}

// tags validates the limits of ARM. ApplyExperiments validates experimental tags.
func tags(report *report, tags map[string]string) {
	if report.tooMany("tags", len(tags), hub.MaxTags) {
		return
	}
	seen := make(map[string]string, len(tags))
	for _, key := range sortedKeys(tags) {
		value, field := tags[key], "tags["+key+"]"
		switch {
		case strings.ContainsFunc(key, unicode.IsControl):
			// The field must not contain the characters either: clients print it.
			quoted := strconv.Quote(key)
			field = "tags[" + quoted[1:len(quoted)-1] + "]"
			report.invalid(field, key, "must not contain control characters")
		case key == "" || utf8.RuneCountInString(key) > maxTagKey:
			report.invalid(field, key, "a tag's name must have 1 to %d characters", maxTagKey)
		case seen[strings.ToLower(key)] != "":
			// ARM compares names of tags without case.
			report.duplicate(field, key)
		}
		seen[strings.ToLower(key)] = key
		report.text(field, value, maxTagValue)
	}
}

// maxShort is a limit that the published contract does not set. Every string needs one, because an accepted resource must fit into
// one document of Cosmos DB and one message to a management cluster. hub.MaxTags and others are the limits of lists and maps.
const maxShort = 256

const identityType = "Microsoft.ManagedIdentity/userAssignedIdentities"

// identityUse is an identity that is assigned to a resource, and how often the resource uses it.
type identityUse struct {
	assigned string
	count    int
}

// identity validates a managed identity. It returns the assigned identities by hub.Key; none if there are too many.
func identity(report *report, identity *hub.Identity, resourceID string) map[string]*identityUse {
	if identity == nil {
		return nil
	}
	switch identity.Type {
	case "":
		report.required("identity.type")
		report.unsupported("identity.type", "", "None", "UserAssigned")
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
	if report.tooMany("identity.userAssignedIdentities", len(identity.UserAssigned), hub.MaxIdentities) {
		return nil
	}
	uses := make(map[string]*identityUse, len(identity.UserAssigned))
	for _, id := range sortedKeys(identity.UserAssigned) {
		field := "identity.userAssignedIdentities[" + id + "]"
		resourceRef(report, field, id, identityType, resourceID, "")
		key := hub.Key(id)
		if uses[key] != nil {
			report.duplicate(field, id)
		}
		uses[key] = &identityUse{assigned: id}
	}
	return uses
}

// resourceRef validates a reference to an Azure resource. The resource must have the given type, be in the subscription of
// the owner and be outside the managed resource group. It returns the parsed ID for further rules, and false if the
// reference violates a rule other than the last one.
func resourceRef(report *report, field, id, resourceType, ownerID, managedGroup string) (parsed ID, ok bool) {
	if id == "" {
		report.required(field)
		return ID{}, false
	}
	parsed, err := ParseID(id)
	if err != nil {
		report.invalid(field, id, "must be an Azure resource id: %s", err)
		return ID{}, false
	}
	if !asciifold.Equal(parsed.Type, resourceType) {
		report.invalid(field, id, "must be the id of a resource of type %s", resourceType)
		return ID{}, false
	}
	owner, _, _ := strings.Cut(ownerID[min(len("/subscriptions/"), len(ownerID)):], "/")
	if owner != "" && !strings.EqualFold(owner, parsed.SubscriptionID) {
		report.invalid(field, id, "must be in the subscription %s of the resource", owner)
		return ID{}, false
	}
	if managedGroup != "" && strings.EqualFold(parsed.ResourceGroup, managedGroup) {
		report.invalid(field, id, "must not be in the managed resource group %s", managedGroup)
	}
	return parsed, true
}

// channelGroup validates a channel group. Groups that are not for production need ExperimentalFeature.
func channelGroup(report *report, field, group string, subscription *hub.Subscription) {
	supported := []string{"fast", "stable"}
	if subscription.HasFeature(ExperimentalFeature) {
		supported = []string{"candidate", "fast", "nightly", "stable"}
	}
	if group == "" {
		report.required(field)
	}
	if !slices.Contains(supported, group) {
		report.unsupported(field, group, supported...)
	}
}

const subnetType = "Microsoft.Network/virtualNetworks/subnets"

// maxGroupOrNetworkID is the longest ID of a network security group or a virtual network that HyperShift accepts, in
// characters.
const maxGroupOrNetworkID = 255

// groupWithoutASCII is the message for a resource group that HyperShift's patterns do not match.
const groupWithoutASCII = "the resource group's name must have an ASCII letter or digit, or one of '_', '-', '.', '(' and ')'"

// subnetRef validates a reference to a subnet; see resourceRef.
func subnetRef(report *report, field, id, ownerID, managedGroup string) (parsed ID, ok bool) {
	parsed, ok = resourceRef(report, field, id, subnetType, ownerID, managedGroup)
	if !ok {
		return ID{}, false
	}
	network, subnet := parsed.Parent[strings.LastIndexByte(parsed.Parent, '/')+1:], parsed.Name
	if len(network) < 2 || len(network) > 64 || !isNetworkName(network) {
		report.invalid(field, id, "the virtual network's name must have 2 to 64 letters, digits, '_', '-' and '.', and end with a letter, a digit or '_'")
	}
	if len(subnet) > 80 || !isNetworkName(subnet) || !isAlphanumeric(subnet[0]) {
		report.invalid(field, id, "the subnet's name must have at most 80 letters, digits, '_', '-' and '.', start with a letter or digit, and end with a letter, a digit or '_'")
	}
	if !hasASCII(parsed.ResourceGroup) {
		report.invalid(field, id, "%s", groupWithoutASCII)
	}
	if len(parsed.Parent) > maxGroupOrNetworkID {
		report.invalid(field, id, "the virtual network's id must have no more than %d characters", maxGroupOrNetworkID)
	}
	return parsed, true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m))
	slices.Sort(keys)
	return keys
}

// ImmutableMessage is the message of a violation by the change of a create-only field.
const ImmutableMessage = "Forbidden: field is immutable"

// immutable reports create-only fields whose values differ.
type immutable struct {
	report *report
}

// within reports a change of an object, too, if one of its fields has changed.
func (i immutable) within(object string, fields func()) {
	before := len(i.report.findings)
	if fields(); len(i.report.findings) > before {
		i.changed(object, "")
	}
}

func (i immutable) text(field, old, now string) {
	if old != now {
		i.changed(field, now)
	}
}

// id compares ARM IDs, which are case-insensitive.
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
	i.report.add(field, wire.FormatValue(now), ImmutableMessage)
}
