package portal

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// egressLinkPages lists the pages of the links of the egress gateway.
func (p *Portal) egressLinkPages() []signedInPage {
	return []signedInPage{{"GET /egress-links", "egress-links", p.egressLinks}}
}

// egressLinks lists the links of the egress gateway by their IDs.
func (p *Portal) egressLinks(w http.ResponseWriter, v *view) {
	var list adminv1.EgressLinkList
	if err := v.api.get("/egress-links", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "egress-links", page{Title: "Egress links", Section: "/egress-links", Body: list.Items})
}

// readEgressLink reads a link that a cluster has.
func readEgressLink(v *view, id string) (object, error) {
	var list adminv1.EgressLinkList
	if err := v.api.get("/egress-links", nil, &list); err != nil {
		return object{}, err
	}
	for _, link := range list.Items {
		if link.LinkID == id && link.RemovedTime == nil {
			return object{ID: id, Name: "Link " + id, URL: "/egress-links", Detail: link.Cluster.ResourceID, Cluster: link.Cluster.UID, Values: url.Values{"hosts": {strings.Join(link.Hosts, "\n")}}}, nil
		}
	}
	return object{}, missing("No cluster has the link any more.")
}

// egressLinkActions lists the actions on the links of the egress gateway.
func egressLinkActions() []action {
	fields := adminv1.FindAction(adminv1.ActionEgressLinkSet).Fields
	return []action{
		{Kind: kindCluster, Path: "set-egress-link", Name: adminv1.ActionEgressLinkSet, Title: "Assign egress link",
			Effect: "The cluster uses the egress gateway through this private endpoint. A link that was removed from another cluster is refused for 15 minutes.",
			Fields: fields},
		{Kind: kindEgressLink, Path: "set", Name: adminv1.ActionEgressLinkSet, Title: "Change hosts", Fields: fields[1:],
			Effect: "The cluster may connect to these hosts and to those of the region. Connections to hosts that are not permitted any more are closed."},
	}
}
