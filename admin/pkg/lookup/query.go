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
	// clusterIDForm is a cluster's id below ARM, alone or within the name of a namespace or of a work.
	clusterIDForm = regexp.MustCompile(`(?:^|-)([0-9a-v]{32})(?:-|$)`)
	// baseDomainForm is a cluster's own domain, as in aro.<prefix>.<domain of the region>.
	baseDomainForm = regexp.MustCompile(`^aro\.([a-z0-9-]+)\..+$`)
	// resourceForm is a cluster's resource id, and what is below it.
	resourceForm = regexp.MustCompile(`(?i)^(/subscriptions/[^/]+/resourceGroups/[^/]+/providers/` + regexp.QuoteMeta(hub.ClusterResourceType) + `/[^/]+)(/.*)?$`)
	// scopeForm is what holds clusters: a subscription, a resource group, and a list of theirs.
	scopeForm = regexp.MustCompile(`(?i)^/subscriptions/([^/]+)(/resourceGroups/[^/]+)?(/providers/` + regexp.QuoteMeta(hub.ClusterResourceType) + `)?$`)
)

// maxDomainPrefix is the longest base domain prefix.
const maxDomainPrefix = 15

// query is what a text may mean, as the questions by which it is found: what any of them finds is meant. Each is one that
// Cluster Service and Cosmos DB have an index for.
type query struct {
	// uid is asked for by itself, which finds a deleted cluster, too.
	uid string
	// fleet are the questions to Cluster Service.
	fleet []*clusterservicev1.ListClustersRequest
	// One of these at most is Cosmos DB's; with none what the fleet knows is all there is.
	name, resourceID, subscription, resourceIDPrefix string
}

// parse says what a text may mean. It is pure.
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

// parseResourceID takes the id of what is below a cluster for the cluster's, and that of what holds clusters for all of them.
func parseResourceID(id string) (query, error) {
	if cluster := resourceForm.FindStringSubmatch(id); cluster != nil {
		m := fleetQuery(&clusterservicev1.ListClustersRequest{ResourceId: cluster[1]})
		m.resourceID = cluster[1]
		return m, nil
	}
	scope := scopeForm.FindStringSubmatch(id)
	switch {
	case scope == nil:
		return query{}, apierror.New(apierror.InvalidParameter, "'%s' is not the resource id of a cluster, nor of a subscription or resource group.", id)
	case scope[2] == "":
		m := fleetQuery(&clusterservicev1.ListClustersRequest{SubscriptionId: scope[1]})
		m.subscription = scope[1]
		return m, nil
	}
	m := fleetQuery(&clusterservicev1.ListClustersRequest{ResourceIdPrefix: id + "/"})
	m.subscription, m.resourceIDPrefix = scope[1], id+"/"
	return m, nil
}

// parseHost takes a URL, a host with a port, or a host.
func parseHost(text string) query {
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		text = u.Host
	}
	text = strings.TrimSuffix(text, ".")
	// An address without a port may be that of many.
	if net.ParseIP(strings.Trim(text, "[]")) != nil {
		return query{}
	}
	m := fleetQuery(&clusterservicev1.ListClustersRequest{ApiHost: text})
	if domain := baseDomainForm.FindStringSubmatch(text); domain != nil {
		m.fleet = append(m.fleet, &clusterservicev1.ListClustersRequest{BaseDomainPrefix: domain[1]})
	}
	return m
}
