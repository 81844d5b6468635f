package arm

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	azarm "github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
)

const (
	zoneType   = "Microsoft.Network/dnsZones"
	recordType = "Microsoft.Network/dnsZones/recordSets"
)

// recordFields maps the emulated record types to the properties with their records.
var recordFields = map[string]string{"A": "ARecords", "CNAME": "CNAMERecord", "NS": "NSRecords", "TXT": "TXTRecords", "SOA": "SOARecord"}

// dnsTypes returns the types of DNS zones and record sets.
func dnsTypes() []*resourceType {
	versions := []string{"2018-05-01"}
	return []*resourceType{
		{name: zoneType, versions: versions, tracked: true, longDelete: true, put: putZone, complete: completeZone},
		{name: recordType, versions: versions, put: putRecord, complete: completeRecord, canDelete: canDeleteRecord, notFound: func(p *path) *Error {
			return &Error{Status: http.StatusNotFound, Code: "NotFound", Message: fmt.Sprintf(
				"The resource record '%s' does not exist in resource group '%s' of subscription '%s'.", p.name, p.group, p.subscription)}
		}},
	}
}

// putZone validates a zone. It creates the name servers of a new zone with its NS and SOA record sets.
func putZone(c *call, old, wanted *Resource) error {
	if !isDomain(wanted.Name) {
		return badRequest("BadRequest", "The zone name '%s' is not a valid DNS name.", wanted.Name)
	}
	if !strings.EqualFold(wanted.Location, "global") {
		return badRequest("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is 'global'.", wanted.Location, zoneType)
	}
	if old != nil {
		wanted.Properties = old.Properties
		return nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(strings.ToLower(wanted.ID))) // never fails
	pool := int(hash.Sum32()%9) + 1
	var servers []any
	for i, top := range []string{"com", "net", "org", "info"} {
		servers = append(servers, fmt.Sprintf("ns%d-%02d.azure-dns.%s.", i+1, pool, top))
	}
	wanted.Properties = map[string]any{"nameServers": servers, "zoneType": "Public", "maxNumberOfRecordSets": 10000}
	records := []any{}
	for _, s := range servers {
		records = append(records, map[string]any{"nsdname": s})
	}
	for kind, properties := range map[string]map[string]any{
		"NS":  {"TTL": 172800, "NSRecords": records},
		"SOA": {"TTL": 3600, "SOARecord": map[string]any{"host": servers[0], "email": "azuredns-hostmaster.microsoft.com", "serialNumber": 1, "refreshTime": 3600, "retryTime": 300, "expireTime": 2419200, "minimumTTL": 300}},
	} {
		apex := &Resource{ID: wanted.ID + "/" + kind + "/@", Name: "@", Type: zoneType + "/" + kind, ETag: wanted.ETag, Properties: properties}
		apex.Properties["provisioningState"] = "Succeeded"
		if err := c.save(apex); err != nil {
			return err
		}
	}
	return nil
}

// completeZone adds the number of record sets.
func completeZone(c *call, r *Resource) error {
	n := 0
	err := c.tx.Scan(resources, strings.ToLower(r.ID)+"/", func(string, func(any) error) error { n++; return nil })
	r.Properties["numberOfRecordSets"] = n
	return err
}

// record holds the properties of a record set that are validated.
type record struct {
	TTL      int `json:"TTL"`
	ARecords []struct {
		Address string `json:"ipv4Address"`
	} `json:"ARecords"`
	NSRecords []struct {
		Name string `json:"nsdname"`
	} `json:"NSRecords"`
	CNAMERecord *struct {
		Name string `json:"cname"`
	} `json:"CNAMERecord"`
	TXTRecords []struct {
		Value []string `json:"value"`
	} `json:"TXTRecords"`
}

// putRecord validates a record set.
func putRecord(c *call, old, wanted *Resource) error {
	zone, err := c.find(c.path.parentID())
	if err != nil {
		return err
	}
	if zone == nil || zone.Deleting {
		return parentNotFound(c.path, c.path.names[0])
	}
	kind := c.path.recordType
	field := recordFields[kind]
	if field == "" || kind == "SOA" {
		return notImplemented("Writes of record sets of type '%s' are not emulated.", kind)
	}
	wanted.Type, wanted.Location = zoneType+"/"+kind, ""
	if wanted.Name != "@" && !isDomain(wanted.Name) {
		return badRequest("BadRequest", "The relative record set name '%s' is not valid.", wanted.Name)
	}
	text, err := json.Marshal(wanted.Properties)
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return badRequest("BadRequest", "The record set is malformed: %v", err)
	}
	if err := r.validate(kind, wanted.Name); err != nil {
		return err
	}
	// A CNAME excludes record sets of other types with the same name (RFC 1034, section 3.6.2).
	for other := range recordFields {
		if other == kind || other != "CNAME" && kind != "CNAME" {
			continue
		}
		sibling, err := c.find(zone.ID + "/" + other + "/" + wanted.Name)
		if err != nil {
			return err
		}
		if sibling != nil {
			return badRequest("CannotAddRecordSet", "A record set of another type exists with the name '%s'; a CNAME record must be alone.", wanted.Name)
		}
	}
	for other, name := range recordFields {
		if other != kind {
			delete(wanted.Properties, name)
		}
	}
	return nil
}

// validate returns an error if a record set has no records of its type or invalid ones.
func (r *record) validate(kind, name string) error {
	empty := false
	switch kind {
	case "A":
		empty = len(r.ARecords) == 0
		for _, a := range r.ARecords {
			if address, err := netip.ParseAddr(a.Address); err != nil || !address.Is4() {
				return badRequest("BadRequest", "The value '%s' of an A record is not an IPv4 address.", a.Address)
			}
		}
	case "NS":
		empty = len(r.NSRecords) == 0
		for _, n := range r.NSRecords {
			if !isDomain(strings.TrimSuffix(n.Name, ".")) {
				return badRequest("BadRequest", "The value '%s' of an NS record is not a DNS name.", n.Name)
			}
		}
	case "CNAME":
		empty = r.CNAMERecord == nil
		switch {
		case name == "@":
			return badRequest("BadRequest", "A CNAME record cannot be at the apex of a zone.")
		case !empty && !isDomain(strings.TrimSuffix(r.CNAMERecord.Name, ".")):
			return badRequest("BadRequest", "The value '%s' of a CNAME record is not a DNS name.", r.CNAMERecord.Name)
		}
	case "TXT":
		empty = len(r.TXTRecords) == 0
	}
	switch {
	case empty:
		return badRequest("BadRequest", "The record set has no records of type %s.", kind)
	case r.TTL < 1:
		return badRequest("BadRequest", "The TTL of a record set must be at least 1.")
	}
	return nil
}

// completeRecord adds the fully qualified name.
func completeRecord(_ *call, r *Resource) error {
	id, err := azarm.ParseResourceID(r.ID)
	if err != nil {
		return err
	}
	fqdn := id.Parent.Name + "."
	if r.Name != "@" {
		fqdn = r.Name + "." + fqdn
	}
	r.Properties["fqdn"] = fqdn
	return nil
}

// canDeleteRecord returns an error for the NS and SOA record sets at the apex of a zone.
func canDeleteRecord(_ *call, r *Resource) error {
	if r.Name == "@" && slices.Contains([]string{"NS", "SOA"}, r.Type[strings.LastIndex(r.Type, "/")+1:]) {
		return badRequest("BadRequest", "The record set at the apex of a zone cannot be deleted.")
	}
	return nil
}

// isDomain reports whether name is a DNS name without the final dot. Underscores and a leading asterisk are permitted.
func isDomain(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for i, label := range strings.Split(name, ".") {
		if label == "*" && i == 0 {
			continue
		}
		if label == "" || len(label) > 63 || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// decode decodes the body of a request.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return badRequest("InvalidRequestContent", "The request content was invalid and could not be deserialized: '%v'.", err)
	}
	return nil
}
