package arm

import (
	"fmt"
	"net/http"
	"strings"
)

// path is what a request's path names: a resource, a collection of resources, or an operation.
type path struct {
	// id is the resource's, or the collection's.
	id           string
	subscription string
	group        string
	// typ is the resource's type, with its namespace; a DNS record set's ends with its record type.
	typ, lowerType string
	// names are those of the resource and of what it is in, outermost first; name is the last, empty for a collection.
	names []string
	name  string
	// scope is what a collection is in, or what a role is assigned on.
	scope string
	// recordType is set for DNS record sets.
	recordType string
	// operation is the id of an operation, result that its outcome is asked for by Location.
	operation string
	result    bool
}

// parsePath reads a path such as /subscriptions/S/resourceGroups/G/providers/N/T/name/T/name.
func parsePath(text string) (*path, error) {
	segments := strings.Split(strings.Trim(text, "/"), "/")
	for _, s := range segments {
		if s == "" {
			return nil, malformed(text)
		}
	}
	p := &path{id: "/" + strings.Join(segments, "/")}
	if strings.EqualFold(segments[0], "providers") {
		// Built-in role definitions are below no subscription.
		return p.extension(segments, 0)
	}
	if !strings.EqualFold(segments[0], "subscriptions") || len(segments) < 3 {
		return nil, malformed(text)
	}
	p.subscription = segments[1]
	rest := segments[2:]
	if len(rest) == 2 && strings.EqualFold(rest[0], "operationresults") {
		p.operation, p.result = rest[1], true
		return p, nil
	}
	// What is authorised is named by the rest of the path after its scope.
	for i := len(segments) - 2; i >= 2; i-- {
		if strings.EqualFold(segments[i], "providers") && strings.EqualFold(segments[i+1], "Microsoft.Authorization") {
			return p.extension(segments, i)
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
		return nil, malformed(text)
	}
	return p.provider(text, rest[1], rest[2:])
}

func (p *path) provider(text, namespace string, rest []string) (*path, error) {
	if n := len(rest); n >= 2 {
		switch kind := strings.ToLower(rest[n-2]); kind {
		case "operations", "operationresults", "dnsoperationstatuses", "dnsoperationresults":
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

func (p *path) extension(segments []string, at int) (*path, error) {
	rest := segments[at+2:]
	if len(rest) == 0 || len(rest) > 2 {
		return nil, malformed(p.id)
	}
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

func (p *path) setType(name string) { p.typ, p.lowerType = name, strings.ToLower(name) }

// kindName is the key of the path's type among the kinds; all DNS record sets are one.
func (p *path) kindName() string { return kindName(p.lowerType) }

func kindName(typ string) string {
	lower := strings.ToLower(typ)
	if strings.HasPrefix(lower, "microsoft.network/dnszones/") {
		return strings.ToLower(recordType)
	}
	return lower
}

func kindOf(r *Resource) string { return kindName(r.Type) }

func (p *path) groupID() string {
	return "/subscriptions/" + p.subscription + "/resourceGroups/" + p.group
}

// parentID is the id of the resource that a child is in.
func (p *path) parentID() string {
	id := p.id[:strings.LastIndex(p.id, "/")]
	return id[:strings.LastIndex(id, "/")]
}

func malformed(text string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "InvalidResourceId", Message: fmt.Sprintf("'%s' names nothing that is emulated.", text)}
}
