package portal

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// driftPages lists the pages of differences between the layers.
func (p *Portal) driftPages() []signedInPage {
	return []signedInPage{
		{"GET /drift", "drift", p.drift},
		{"GET /orphans", "orphans", p.orphans},
		{"GET /azure-orphans", "azure-orphans", p.azureOrphans},
		{"GET /leftovers", "leftovers", p.leftovers},
		{"GET /clusters/{cluster}/works", "works", p.works},
	}
}

// drift lists the differences between ARM's documents, the fleet, Maestro and the management clusters. admin compares them for this request.
func (p *Portal) drift(w http.ResponseWriter, v *view) {
	var list adminv1.DriftList
	if err := v.api.get("/drift", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "drift", page{Title: "Drift", Section: "/drift", Body: list})
}

// driftOffer returns the link to delete a resource that ARM does not have; empty if the difference is another one, or is repaired by itself.
func driftOffer(d adminv1.Drift) string {
	if d.Difference != string(reconciliation.Orphan) || d.AutoRepaired {
		return ""
	}
	return offerOf(kindDrift, "delete", d.UID, nil).URL
}

// orphans lists the Maestro bundles that belong to no ManifestWork.
func (p *Portal) orphans(w http.ResponseWriter, v *view) {
	var list adminv1.OrphanList
	if err := v.api.get("/orphans", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "orphans", page{Title: "Orphans", Section: "/drift", Body: list})
}

// azureOrphans lists the resources in Azure that belong to no cluster.
func (p *Portal) azureOrphans(w http.ResponseWriter, v *view) {
	var list adminv1.AzureOrphanList
	if err := v.api.get("/azure-orphans", nil, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	v.render(w, http.StatusOK, "azure-orphans", page{Title: "Azure orphans", Section: "/drift", Body: adminv1.Contents(list.Items)})
}

// leftoversView is the content of the list of leftovers.
type leftoversView struct {
	Items []*clusterservicev1.DeletionLeftover
	// Gone is true if the list contains leftovers that are gone.
	Gone bool
}

// leftovers lists what forced deletions left behind.
func (p *Portal) leftovers(w http.ResponseWriter, v *view) {
	body := leftoversView{Gone: v.request.URL.Query().Get("gone") != ""}
	query := url.Values{}
	if body.Gone {
		query.Set("gone", "true")
	}
	var list adminv1.LeftoverList
	if err := v.api.get("/deletion-leftovers", query, &list); err != nil {
		p.fail(w, v.request, v, err)
		return
	}
	body.Items = adminv1.Contents(list.Items)
	v.render(w, http.StatusOK, "leftovers", page{Title: "Leftovers", Section: "/deletions", Body: body})
}

// worksView is the content of the works of a cluster.
type worksView struct {
	clusterFrame
	adminv1.BundleList
}

// works shows the Maestro bundles of a cluster with their status. Reading them is audited.
func (p *Portal) works(w http.ResponseWriter, v *view) {
	var list adminv1.BundleList
	cluster, found := p.findPart(w, v, "/works", nil, &list)
	if !found {
		return
	}
	v.render(w, http.StatusOK, "works", clusterPage(cluster, "Works", worksView{clusterFrame: frame(cluster, "/works"), BundleList: list}))
}

// appliedState returns how the management cluster differs from a bundle, or else the status of the condition Applied that the agent reported.
func appliedState(b adminv1.Bundle) string {
	switch {
	case b.DeletedAt != nil:
		return "Deleting"
	case b.Drift != "":
		return b.Drift
	}
	var status struct {
		Conditions []struct{ Type, Status string } `json:"conditions"`
	}
	if json.Unmarshal(b.Status, &status) == nil {
		for _, c := range status.Conditions {
			if c.Type == "Applied" {
				if c.Status == "True" {
					return "Applied"
				}
				return "Not applied"
			}
		}
	}
	return "Unknown"
}

// manifestObjects returns the objects of a bundle: kind, namespace and name.
func manifestObjects(b adminv1.Bundle) []string {
	var list []string
	for _, manifest := range b.Manifests {
		var object struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Namespace string `json:"namespace"`
				Name      string `json:"name"`
			} `json:"metadata"`
		}
		if json.Unmarshal(manifest, &object) != nil {
			list = append(list, "a manifest that is no object")
			continue
		}
		name := object.Metadata.Name
		if object.Metadata.Namespace != "" {
			name = object.Metadata.Namespace + "/" + name
		}
		list = append(list, object.Kind+" "+name)
	}
	return list
}

// query returns the query of pairs of names and values.
func query(pairs ...string) url.Values {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return values
}
