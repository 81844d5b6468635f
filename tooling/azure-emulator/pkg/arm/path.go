package arm

import (
	"fmt"
	"net/http"
	"strings"
)

// path is a parsed URL path: it identifies a resource, a collection of resources, or an operation.
type path struct {
	// id is the ID of the resource or the collection.
	id           string
	subscription string
	group        string
	// typ is the resource type with its namespace. For a DNS record set it ends with the record type.
	typ, lowerType string
	// names are the names of the resource and its parents, outermost first. name is the last, or empty for a collection.
	names []string
	name  string
	// scope is the parent of a collection, or the resource of an extension resource.
	scope string
	// extension reports whether the path is that of extension resources: role assignments, diagnostic settings or associations of data
	// collection rules.
	extension bool
	// recordType is the type of a DNS record set.
	recordType string
	// operation is the ID of an operation. result reports whether the path is that of a Location header.
	operation string
	result    bool
}

// parsePath parses a path such as /subscriptions/S/resourceGroups/G/providers/N/T/name/T/name.
func parsePath(text string) (*path, error) {
	segments := strings.Split(strings.Trim(text, "/"), "/")
	for _, s := range segments {
		if s == "" {
			return nil, invalidPath(text)
		}
	}
	p := &path{id: "/" + strings.Join(segments, "/")}
	if strings.EqualFold(segments[0], "providers") {
		// Built-in role definitions belong to no subscription.
		return p.parseExtension(segments, 0)
	}
	if !strings.EqualFold(segments[0], "subscriptions") || len(segments) < 3 {
		return nil, invalidPath(text)
	}
	p.subscription = segments[1]
	rest := segments[2:]
	if len(rest) == 2 && strings.EqualFold(rest[0], "operationresults") {
		p.operation, p.result = rest[1], true
		return p, nil
	}
	// The scope of an extension resource is the part before the last providers segment.
	for i := len(segments) - 2; i >= 2; i-- {
		if strings.EqualFold(segments[i], "providers") && isExtension(segments[i+1:]) {
			return p.parseExtension(segments, i)
		}
	}
	if strings.EqualFold(rest[0], "resourceGroups") {
		if len(rest) == 1 {
			p.setType(groupType)
			p.scope = "/subscriptions/" + p.subscription + "/resourceGroups"
			return p, nil
		}
		p.group = rest[1]
		rest = rest[2:]
		if len(rest) == 0 {
			p.setType(groupType)
			p.names, p.name = []string{p.group}, p.group
			return p, nil
		}
	}
	if !strings.EqualFold(rest[0], "providers") || len(rest) < 3 {
		return nil, invalidPath(text)
	}
	return p.parseProvider(text, rest[1], rest[2:])
}

// parseProvider parses the segments after /providers/<namespace>.
func (p *path) parseProvider(text, namespace string, rest []string) (*path, error) {
	if n := len(rest); n >= 2 {
		switch kind := strings.ToLower(rest[n-2]); kind {
		case "operations", "operationstatuses", "operationresults", "dnsoperationstatuses", "dnsoperationresults":
			p.operation, p.result = rest[n-1], strings.HasSuffix(kind, "results")
			return p, nil
		}
	}
	p.typ = namespace
	for i := 0; i < len(rest); i += 2 {
		p.typ += "/" + rest[i]
		if i+1 < len(rest) {
			p.names = append(p.names, rest[i+1])
		}
	}
	if len(rest)%2 == 0 {
		p.name = p.names[len(p.names)-1]
	} else {
		p.scope = p.id[:strings.LastIndex(p.id, "/")]
	}
	p.setType(p.typ)
	if strings.HasPrefix(p.lowerType, "microsoft.network/dnszones/") {
		p.recordType = strings.ToUpper(rest[2])
		if p.recordType == "RECORDSETS" || p.recordType == "ALL" {
			p.recordType = ""
		}
	}
	return p, nil
}

// isExtension reports whether the segments after a providers segment are those of extension resources.
func isExtension(segments []string) bool {
	if strings.EqualFold(segments[0], "Microsoft.Authorization") {
		return true
	}
	if len(segments) == 1 {
		return false
	}
	typ := segments[0] + "/" + segments[1]
	return strings.EqualFold(typ, diagnosticType) || strings.EqualFold(typ, associationType)
}

// parseExtension parses an extension resource, with the providers segment at index at.
func (p *path) parseExtension(segments []string, at int) (*path, error) {
	rest := segments[at+2:]
	if len(rest) == 0 || len(rest) > 2 {
		return nil, invalidPath(p.id)
	}
	p.extension = true
	if at > 0 {
		p.scope = "/" + strings.Join(segments[:at], "/")
	}
	p.setType(segments[at+1] + "/" + rest[0])
	if len(rest) == 2 {
		p.name = rest[1]
		p.names = rest[1:]
	}
	return p, nil
}

// setType sets the resource type.
func (p *path) setType(name string) { p.typ, p.lowerType = name, strings.ToLower(name) }

// typeKey returns the key of the path's type in Server.types. All DNS record sets have the same key.
func (p *path) typeKey() string { return typeKey(p.lowerType) }

// typeKey returns the key of a resource type in Server.types.
func typeKey(typ string) string {
	lower := strings.ToLower(typ)
	if strings.HasPrefix(lower, "microsoft.network/dnszones/") {
		return strings.ToLower(recordType)
	}
	return lower
}

// typeKeyOf returns the key of a resource's type in Server.types.
func typeKeyOf(r *Resource) string { return typeKey(r.Type) }

// listScope returns the scope of a collection: its parent resource, its resource group or its subscription. That of extension resources
// is their collection, because a child of the resource has extension resources too.
func (p *path) listScope() string {
	if p.extension {
		return p.id
	}
	if p.group == "" && len(p.names) == 0 && p.typ != groupType {
		return "/subscriptions/" + p.subscription
	}
	return p.scope
}

// groupID returns the ID of the resource group.
func (p *path) groupID() string {
	return "/subscriptions/" + p.subscription + "/resourceGroups/" + p.group
}

// parentID returns the ID of the parent of a child resource.
func (p *path) parentID() string {
	id := p.id[:strings.LastIndex(p.id, "/")]
	return id[:strings.LastIndex(id, "/")]
}

// invalidPath returns the error for a path that is not emulated.
func invalidPath(text string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "InvalidResourceId", Message: fmt.Sprintf("The path '%s' is not emulated.", text)}
}
