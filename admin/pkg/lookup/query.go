package lookup

import (
	"net"
	"net/url"
	"regexp"
	"strings"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

var (
	uuidForm = regexp.MustCompile(`^(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	// clusterIDForm matches a cluster ID alone, or in the name of a namespace or of a work.
	clusterIDForm = regexp.MustCompile(`(?:^|-)([0-9a-v]{32})(?:-|$)`)
	// baseDomainForm matches the domain of a cluster, aro.<prefix>.<domain of the region>.
	baseDomainForm = regexp.MustCompile(`^aro\.([a-z0-9-]+)\..+$`)
	// resourceForm matches the resource ID of a cluster or of one of its children.
	resourceForm = regexp.MustCompile(`(?i)^(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/` + regexp.QuoteMeta(hub.ClusterResourceType) + `/[^/]+)(/.*)?$`)
	// scopeForm matches the resource ID of a subscription, of a resource group, and of the list of clusters in either.
	scopeForm = regexp.MustCompile(`(?i)^/subscriptions/([^/]+)(/resourceGroups/[^/]+)?(/providers/` + regexp.QuoteMeta(hub.ClusterResourceType) + `)?$`)
)

// maxDomainPrefix is the maximum length of a base domain prefix.
const maxDomainPrefix = 15

// query holds the requests that search for an identifier; the results of all of them match. Cluster Service and Cosmos DB have
// an index for each request.
type query struct {
	// uid is looked up separately, which also finds deletion records.
	uid string
	// fleet holds the requests to Cluster Service.
	fleet []*clusterservicev1.ListClustersRequest
	// At most one of these is set, for the request to Cosmos DB. If none is, only the fleet is searched.
	name, resourceID, subscription, resourceIDPrefix string
}

// parse returns the query for an identifier. It is a pure function.
func parse(text string) (query, error) {
	lower := strings.ToLower(text)
	switch {
	case strings.HasPrefix(text, "/"):
		return parseResourceID(strings.TrimRight(text, "/"))
	case clusterIDForm.MatchString(lower):
		return fleetQuery(&clusterservicev1.ListClustersRequest{ClusterId: clusterIDForm.FindStringSubmatch(lower)[1]}), nil
	case uuidForm.MatchString(text):
		m := fleetQuery(&clusterservicev1.ListClustersRequest{SubscriptionId: lower})
		m.uid, m.subscription = lower, lower
		return m, nil
	case strings.ContainsAny(text, ".:/"):
		return parseHost(lower), nil
	case text == "":
		return query{}, nil
	}
	m := fleetQuery(&clusterservicev1.ListClustersRequest{Name: text})
	m.name = text
	if len(text) <= maxDomainPrefix {
		m.fleet = append(m.fleet, &clusterservicev1.ListClustersRequest{BaseDomainPrefix: text})
	}
	return m, nil
}

func fleetQuery(question *clusterservicev1.ListClustersRequest) query {
	return query{fleet: []*clusterservicev1.ListClustersRequest{question}}
}

// parseResourceID maps the ID of a child to its cluster, and the ID of a scope to all clusters in it.
func parseResourceID(id string) (query, error) {
	if cluster := resourceForm.FindStringSubmatch(id); cluster != nil {
		m := fleetQuery(&clusterservicev1.ListClustersRequest{ResourceId: cluster[1]})
		m.resourceID = cluster[1]
		return m, nil
	}
	scope := scopeForm.FindStringSubmatch(id)
	switch {
	case scope == nil:
		return query{}, apierror.New(apierror.InvalidParameter, "'%s' is not the resource ID of a cluster, subscription or resource group.", id)
	case scope[2] == "":
		m := fleetQuery(&clusterservicev1.ListClustersRequest{SubscriptionId: scope[1]})
		m.subscription = scope[1]
		return m, nil
	}
	m := fleetQuery(&clusterservicev1.ListClustersRequest{ResourceIdPrefix: id + "/"})
	m.subscription, m.resourceIDPrefix = scope[1], id+"/"
	return m, nil
}

// parseHost parses a URL, a host with a port, or a host.
func parseHost(text string) query {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		text = u.Host
	}
	text = strings.TrimSuffix(text, ".")
	// An IP address without a port may belong to many clusters.
	if net.ParseIP(strings.Trim(text, "[]")) != nil {
		return query{}
	}
	m := fleetQuery(&clusterservicev1.ListClustersRequest{ApiHost: text})
	if domain := baseDomainForm.FindStringSubmatch(text); domain != nil {
		m.fleet = append(m.fleet, &clusterservicev1.ListClustersRequest{BaseDomainPrefix: domain[1]})
	}
	return m
}
